#include "schemes/nccl/model_worker.h"

#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0::nccl {

std::optional<Word> ModelWorker::said() {
  if (outbox_.empty()) return std::nullopt;
  Word word = std::move(outbox_.front());
  outbox_.pop_front();
  return word;
}

bool ModelWorker::turn(bool fails) {
  if (silent_) return false;
  for (auto& [group, communicator] : communicators_) {
    if (!communicator.has(id_) || !communicator.end_init(id_, fails)) continue;
    say({.kind = fails ? Word::Kind::kFailed : Word::Kind::kMade, .group = group});
    return true;
  }
  if (inbox_.empty()) return false;
  const Word word = std::move(inbox_.front());
  inbox_.pop_front();
  watch_.say("worker ", id_, " hears ", text_of(word), fails ? ", and fails" : "");
  hear(word, fails);
  return true;
}

void ModelWorker::hear(const Word& word, bool fails) {
  const auto found = communicators_.find(word.group);
  switch (word.kind) {
    case Word::Kind::kAsk: return say({.kind = fails ? Word::Kind::kFailed : Word::Kind::kReady, .group = word.group});
    case Word::Kind::kMake: return found->second.call(id_);
    case Word::Kind::kWarm: return found->second.post(id_, {});
    case Word::Kind::kDrop:
      if (found != communicators_.end()) found->second.leave(id_);
      return say({.kind = Word::Kind::kDropped,
                  .group = word.group,
                  .number = coming_ ? coming_->number : 0,
                  .from = coming_ ? there_ : 0});
    case Word::Kind::kDeliver:
      if (fails && !waits()) return refuse(word);
      receives_.push_back(word);
      return begin_receives();
    case Word::Kind::kAgain:
      if (is_coming(word.number)) return take_part(word);
      early_[word.number] = word;
      return;
    case Word::Kind::kOver:
      if (!is_coming(word.number)) {
        early_[word.number] = word;
        return;
      }
      coming_.reset();
      return begin_receives();
    default: watch_.expect(false, cat("the sender said ", text_of(word)));
  }
}

// It has no room for it.
void ModelWorker::refuse(const Word& word) {
  say({.kind = Word::Kind::kFailed, .group = word.group, .number = word.number});
  ModelCommunicator& communicator = communicators_.at(word.group);
  if (communicator.is_gone(id_)) return;
  communicator.leave(id_);
  say({.kind = Word::Kind::kDropped, .group = word.group});
}

void ModelWorker::begin_receives() {
  while (!coming_ && !receives_.empty()) {
    coming_ = std::move(receives_.front());
    receives_.pop_front();
    there_ = 0;
    Word word = *coming_;
    if (const auto early = early_.extract(word.number)) word = early.mapped();
    if (word.kind == Word::Kind::kOver) {
      coming_.reset();
    } else {
      take_part(word);
    }
  }
}

void ModelWorker::take_part(const Word& word) {
  watch_.expect(word.from <= there_, cat("delivery ", word.number, " goes on behind what worker ", id_, " has"));
  there_ = word.from;
  ModelCommunicator& communicator = communicators_.at(word.group);
  if (!communicator.is_gone(id_)) communicator.post(id_, {.number = word.number, .from = word.from});
}

void ModelWorker::break_ranks() {
  for (auto& [group, communicator] : communicators_) {
    if (!communicator.has(id_) || !communicator.is_busy(id_)) continue;
    watch_.say("worker ", id_, "'s rank of group ", group, " breaks");
    communicator.break_rank(id_);
    say({.kind = Word::Kind::kFailed, .group = group, .why = "it broke"});
  }
}

void ModelWorker::moved(const Posted& posted, std::uint64_t there) {
  if (is_coming(posted.number)) there_ = there;
}

void ModelWorker::came(CommGroupId group, const Posted& posted) {
  if (posted.number == 0) return say({.kind = Word::Kind::kWarmed, .group = group});
  if (!is_coming(posted.number)) return;
  coming_.reset();
  say({.kind = Word::Kind::kGot, .number = posted.number});
  begin_receives();
}

}  // namespace bascule::inline v0::nccl
