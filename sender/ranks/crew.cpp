#include <bascule/sender/ranks/crew.h>

#include <algorithm>
#include <utility>

#include <bascule/transport/status.h>

namespace bascule::inline v0 {
namespace {

using Kind = RankMessage::Kind;

}  // namespace

std::string Crew::name_of_rank(std::size_t rank) const { return cat("rank ", rank, " (pid ", members_[rank].pid, ")"); }

// ---- messages ----

absl::Status Crew::lose(std::size_t rank, const absl::Status& why) {
  return end(absl::Status(why.code(), cat(name_of_rank(rank), " is lost: ", message_of(why))));
}

absl::Status Crew::end(absl::Status why) {
  const std::lock_guard lock(mutex_);
  note_gone();
  lost_ = std::move(why);
  RankMessage message(Kind::kReport);
  message.report = sent(absl::StatusOr<SendReport>(lost_));
  const std::string bytes = to_bytes(message);
  for (Member& member : members_) {
    if (!member.line) continue;
    // A rank that waits reads it at once; another finds it at its next call.
    member.line->write(bytes, Deadline(absl::ZeroDuration())).IgnoreError();
    member.line.reset();
  }
  return lost_;
}

absl::Status Crew::say(std::size_t rank, std::string_view name, std::string_view bytes,
                       std::span<const int> descriptors) {
  if (!lost_.ok()) return lost_;
  if (trace_) trace_(cat("to rank ", rank, ": ", name));
  const absl::Status written = members_[rank].line->write(bytes, Deadline(timeout_), descriptors);
  return written.ok() ? written : lose(rank, written);
}

absl::Status Crew::say_to_all(const RankMessage& message, std::span<const int> descriptors) {
  const std::string bytes = to_bytes(message);
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(say(rank, name_of(message), bytes, descriptors));
  return lost_;
}

absl::Status Crew::hear_all(Kind kind, Deadline deadline, std::string_view what, Late late) {
  BASCULE_TRY(lost_);
  std::vector<RankLine*> waited(members_.size());
  for (std::size_t rank = 1; rank < members_.size(); ++rank) waited[rank] = &*members_[rank].line;
  std::size_t unawaited = 0;
  while (std::ranges::any_of(waited, [](const RankLine* line) { return line != nullptr; })) {
    const absl::StatusOr<std::vector<std::size_t>> ready = wait_readable(waited, deadline, interrupted_);
    if (!ready.ok()) {
      std::string missing;
      std::size_t last = 0;
      for (std::size_t rank = 1; rank < waited.size(); ++rank) {
        if (waited[rank] == nullptr) continue;
        absl::StrAppend(&missing, missing.empty() ? "" : ", ", name_of_rank(rank));
        if (kind == Kind::kReady) members_[rank].missed.push_back(step_);
        last = rank;
      }
      const absl::Status why(ready.status().code(), cat(missing, " has not ", what, ": ", message_of(ready.status())));
      return late == Late::kLost ? lose(last, why) : why;
    }
    for (const std::size_t rank : *ready) {
      absl::StatusOr<RankLine::Frame> frame = waited[rank]->read(Deadline(timeout_));
      if (!frame.ok()) return lose(rank, frame.status());
      absl::StatusOr<RankMessage> message = parse_rank_message(frame->bytes);
      if (!message.ok()) return lose(rank, message.status());
      if (trace_) trace_(cat("from rank ", rank, ": ", name_of(*message)));
      if (message->kind == Kind::kReady && has_missed(members_[rank], message->step)) continue;
      // A rank whose call has ended without it, because it came late, may have begun another one.
      if (message->kind == Kind::kReady) members_[rank].call = message->number;
      if (message->kind != kind) {
        if (message->kind == Kind::kReady && ++unawaited < kMostUnawaitedMessages) continue;
        return lose(rank, invalid_argument("it broke the protocol: expected ", name_of(RankMessage(kind)), ", found ",
                                           name_of(*message)));
      }
      members_[rank].came = *std::move(message);
      members_[rank].descriptors = std::move(frame->descriptors);
      waited[rank] = nullptr;
    }
  }
  return absl::OkStatus();
}

// ---- a send ----

bool Crew::has_missed(Member& member, std::uint64_t step) {
  const auto missed = std::ranges::find(member.missed, step);
  const bool found = missed != member.missed.end();
  member.missed.erase(member.missed.begin(), found ? missed + 1 : missed);
  return found;
}

absl::Status Crew::gather(const std::string& call, std::uint64_t step) {
  step_ = step;
  BASCULE_TRY(hear_all(Kind::kReady, Deadline(timeout_), cat("called ", call, " for step ", step), Late::kReported));
  std::string different;
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    const RankMessage& came = *members_[rank].came;
    if (came.call != call || came.step != step)
      absl::StrAppend(&different, different.empty() ? "" : ", ", "rank ", rank, " calls ",
                      absl::string_view(came.call.data(), came.call.size()), " for step ", came.step);
  }
  if (different.empty()) return absl::OkStatus();
  return failed_precondition("the ranks are not at the same step: rank 0 calls ", call, " for step ", step, ", ",
                             different, "; nothing was sent");
}

absl::Status Crew::plan_packing(const Layout& layout) {
  if (layout_ == layout) return absl::OkStatus();
  if (!division_) {
    BASCULE_ASSIGN(packing_, ShardPacking::make(layout, *held_, owned_));
  } else {
    if (!region_) {
      BASCULE_ASSIGN(region_, RegionPacking::make(held_->device()));
    }
    BASCULE_TRY(region_->plan(layout, 0, *held_, owned_));
  }
  layout_ = layout;
  return absl::OkStatus();
}

absl::Status Crew::show(const Layout& layout, SlotMemory& memory) {
  BASCULE_TRY(plan_packing(layout));
  Shown shown{.number = next_slot_++};
  absl::Status taken = show(layout, memory, shown);
  if (taken.ok()) {
    shown_.insert_or_assign(memory.data(), std::move(shown));
  } else if (lost_.ok()) {
    say_to_all(RankMessage(Kind::kForget, shown.number)).IgnoreError();  // the next send makes it again
  }
  return taken;
}

absl::Status Crew::show(const Layout& layout, SlotMemory& memory, Shown& shown) {
  BASCULE_TRY(show_to_write(layout, memory, shown));
  // A late rank would map the slot when it is sealed, which fails.
  BASCULE_TRY(hear_all(Kind::kMapped, Deadline(timeout_), "mapped a slot", Late::kLost));
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(annotate(received(members_[rank].came->status),
                         cat(name_of_rank(rank), division_ ? " cannot make its region" : " cannot map a slot")));
  return division_ ? take_regions(memory) : absl::OkStatus();
}

absl::Status Crew::show_to_write(const Layout& layout, SlotMemory& memory, Shown& shown) {
  BASCULE_ASSIGN(shown.table, SharedTable::make(layout.bytes()));
  std::vector<int> descriptors;
  if (division_) {
    BASCULE_ASSIGN(shown.on_device, region_->reach(*shown.table));
  } else {
    packing_->mark(*shown.table);
    descriptors.push_back(memory.descriptor.get());
  }
  descriptors.push_back(shown.table->descriptor());
  RankMessage message(Kind::kSlot, shown.number);
  message.layout = layout;
  message.bytes = memory.bytes;
  message.data_offset = memory.data_offset;
  return say_to_all(message, descriptors);
}

absl::Status Crew::take_regions(SlotMemory& memory) {
  for (std::size_t rank = 1; rank < members_.size(); ++rank) {
    Member& member = members_[rank];
    const bool has_bytes = layout_->region_borders()[rank] < layout_->region_borders()[rank + 1];
    if (member.descriptors.size() != (has_bytes ? 1 : 0))
      return lose(rank, invalid_argument("it gave ", member.descriptors.size(), " descriptors for its region"));
    memory.others.push_back({.descriptor = has_bytes ? ProcessFd(std::move(member.descriptors.front())) : ProcessFd(),
                             .place = std::exchange(member.came->description, {})});
    member.descriptors.clear();
  }
  return absl::OkStatus();
}

Crew::Shown* Crew::find(const SlotMemory& memory) {
  const auto found = shown_.find(memory.data());
  return found == shown_.end() ? nullptr : &found->second;
}

void Crew::forget(const SlotMemory& memory) {
  if (const Shown* const shown = find(memory)) {
    say_to_all(RankMessage(Kind::kForget, shown->number)).IgnoreError();
    shown_.erase(memory.data());
  }
}

absl::Status Crew::write(const Layout& layout, SlotMemory& memory, bool digest, kernels::ThreadPool& pool) {
  writing_ = find(memory);
  if (writing_ == nullptr) return absl::InternalError("a slot that the ranks do not know");
  slot_ = &memory;
  digest_ = digest;
  BASCULE_ASSIGN(const bool other_strides, held_->refresh());
  if (other_strides) layout_.reset();
  if (!layout_) BASCULE_TRY(plan_packing(layout));  // also if the last attempt failed
  RankMessage message(Kind::kWrite, writing_->number);
  message.step = step_;
  message.digest = digest;
  BASCULE_TRY(say_to_all(message));
  if (division_) return region_->begin(*held_, memory, digest, *writing_->table, writing_->on_device.get(), pool);
  packing_->write(*held_, memory.writable(), *writing_->table, digest, pool);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Digest>> Crew::finish(Deadline deadline, kernels::ThreadPool& pool,
                                                   std::span<kernels::TileTotal> table) {
  BASCULE_TRY(hear_all(Kind::kWritten, deadline, "written its part", Late::kLost));
  for (std::size_t rank = 1; rank < members_.size(); ++rank)
    BASCULE_TRY(annotate(received(members_[rank].came->status), name_of_rank(rank)));
  if (division_) {
    BASCULE_TRY(region_->finish(deadline));
  } else if (digest_) {
    BASCULE_TRY(digest_shared_tiles(deadline, pool));
  }
  if (!digest_) return std::nullopt;
  return writing_->table->add_up(table, pool).finish(slot_->bytes);
}

absl::Status Crew::digest_shared_tiles(Deadline deadline, kernels::ThreadPool& pool) {
  BASCULE_TRY(say_to_all(RankMessage(Kind::kDigest, writing_->number)));
  writing_->table->digest_share(slot_->writable(), 0, members_.size(), pool);
  return hear_all(Kind::kDigested, deadline, "digested its share", Late::kLost);
}

void Crew::report(const absl::StatusOr<SendReport>& report) {
  RankMessage message(Kind::kReport);
  message.report = sent(report);
  message.step = step_;
  std::string bytes;  // the ranks' calls usually have the same number
  for (std::size_t rank = 1; rank < members_.size() && lost_.ok(); ++rank) {
    Member& member = members_[rank];
    std::uint64_t call = std::exchange(member.call, 0);
    if (call == 0 && !member.missed.empty() && member.missed.back() == step_) call = kCallForStep;
    if (call == 0) continue;
    if (bytes.empty() || message.number != call) {
      message.number = call;
      bytes = to_bytes(message);
    }
    say(rank, name_of(message), bytes).IgnoreError();
  }
}

}  // namespace bascule::inline v0
