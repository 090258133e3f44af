#include <bascule/receiver/preparer.h>

#include <algorithm>

#include <bascule/transport/post_surely.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

Preparer::Preparer(boost::asio::io_context& io, HandlerScope scope, const ReceiverOptions& options,
                   const Endpoint& endpoint, const Scheme& scheme, std::function<void(const absl::Status&)> poison)
    : io_(io),
      scope_(std::move(scope)),
      may_only_look_up_(scheme.maps_once && options.fused.empty() && endpoint.digest != DigestMode::kAlways),
      poison_(poison),
      context_(options, endpoint, scheme, std::move(poison)),
      queue_(PreparePool::get()) {
  context_.prepare_on(queue_.pool());
}

void Preparer::copy_by(Copier* copier) {
  copies_ = true;
  context_.copy_by(copier);
}

void Preparer::stop() {
  look_.request_stop();  // it may be reading a whole model
  context_.stop();
  queue_.stop();
}

// Whether a version is prepared and given back in a short time, without touching its bytes.
bool Preparer::only_looks_up() const {
  return may_only_look_up_ && !copies_ && reach_ == Reach::kInPlace && sender_digest_ != DigestMode::kAlways;
}

template <typename Job>
void Preparer::submit(Job job, bool only_looks_up) noexcept {
  const auto task = shared_task(std::move(job));
  std::function<void()> queued;
  static_cast<void>(until_done([&] { queued = task; }));
  only_looks_up ? queue_.run_or_submit(std::move(queued)) : queue_.submit(std::move(queued));
}

template <typename Done>
void Preparer::answer(Done done) noexcept {
  post_surely(io_, scope_(std::move(done)));
}

// ---- a sender's memory ----

void Preparer::reach(Welcome welcome, std::vector<UniqueFd> descriptors, std::shared_ptr<Attachment> known,
                     std::function<void(absl::StatusOr<Reached>)> done) {
  constexpr std::size_t kMany = 4096;
  sender_digest_ = welcome.digest;
  many_tensors_ = welcome.layout.tensors().size() > kMany;
  listed_.clear();
  reach_ = Reach::kUnknown;
  struct Received {
    Welcome welcome;
    std::vector<UniqueFd> descriptors;
  };
  const auto received =
      std::make_shared<Received>(Received{.welcome = std::move(welcome), .descriptors = std::move(descriptors)});
  submit([this, received, known = std::move(known), done = std::move(done)]() mutable {
    absl::StatusOr<Reached> result = out_of_memory();
    const absl::Status tried = caught([&]() -> absl::Status {
      absl::StatusOr<ReadPlan> plan = context_.take(received->welcome.layout);
      if (!plan.ok()) {
        result = Reached{.fits = plan.status(), .reception = {}, .path = {}};
        return absl::OkStatus();
      }
      BASCULE_TRY(context_.reach(std::move(received->welcome), std::move(received->descriptors), *std::move(plan),
                                 std::move(known)));
      result = Reached{.fits = absl::OkStatus(), .reception = context_.reception(), .path = context_.path()};
      reach_ = context_.copies() ? Reach::kCopied : result->reception ? Reach::kReceived : Reach::kInPlace;
      return absl::OkStatus();
    });
    if (!tried.ok()) result = tried;
    answer([done = std::move(done), result = std::move(result)]() mutable { done(std::move(result)); });
  });
}

void Preparer::accept(ReceivedOffer offer, std::function<void(const absl::Status&)> done) {
  const auto received = std::make_shared<ReceivedOffer>(std::move(offer));
  submit([this, received, done = std::move(done)]() mutable {
    absl::Status accepted = caught([&] { context_.accept(std::move(*received)); });
    answer([done = std::move(done), accepted = std::move(accepted)] { done(accepted); });
  });
}

void Preparer::keep_only(std::set<SlotId> slots) {
  std::erase_if(listed_, [&](SlotId slot) { return !slots.contains(slot); });
  submit([this, slots = std::move(slots)] { context_.keep_only(slots); });
}

// ---- versions ----

void Preparer::copy_behind(Publication publication, std::shared_ptr<Preparation> preparation) {
  submit([this, publication, preparation = std::move(preparation)]() mutable {
    if (context_.copy_behind(publication, *preparation)) copy_behind(publication, std::move(preparation));
  });
}

void Preparer::prepare(Publication publication, BackSet set, std::shared_ptr<Preparation> preparation,
                       std::function<void(const absl::Status&)> done) {
  auto job = [this, publication, set = std::move(set), preparation = std::move(preparation),
              done = std::move(done)]() mutable {
    absl::Status prepared = caught([&] { return context_.prepare(publication, set, *preparation); });
    answer([done = std::move(done), prepared = std::move(prepared)] { done(prepared); });
  };
  const bool lists_many = many_tensors_ && listed_.insert(publication.slot).second;
  submit(std::move(job), only_looks_up() && !lists_many);
}

void Preparer::give_back(LeaseTracker::Departing departing, std::shared_ptr<Preparation> preparation, Passed passed,
                         std::function<void(std::uint64_t)> done) {
  if (passed) return give_back_behind(std::move(departing), std::move(passed), std::move(done));
  const bool at_once = only_looks_up() && !preparation && !departing.last_of_attachment;
  auto job = [this, departing = std::move(departing), preparation = std::move(preparation),
              done = std::move(done)]() mutable {
    static_cast<void>(caught([&] {
      if (preparation && preparation->reached) preparation->local.attachment->end_read(preparation->reached->slot);
    }));
    static_cast<void>(caught([&] {
      if (departing.local.attachment) departing.local.attachment->end_read(departing.local.source());
    }));
    answer([done = std::move(done), number = departing.number] { done(number); });
  };
  submit(std::move(job), at_once);
}

// Waits as long as the engine's stream takes; the slot is leased until then. The prepare thread does its other jobs in
// between. If the stream cannot be asked, the slot stays leased.
void Preparer::give_back_behind(LeaseTracker::Departing departing, Passed passed,
                                std::function<void(std::uint64_t)> done) {
  submit([this, departing = std::move(departing), passed = std::move(passed), done = std::move(done)]() mutable {
    absl::Status waited;
    const bool asked = caught([&] { waited = passed(Deadline(absl::Milliseconds(20))); }).ok();
    if (!asked || absl::IsDeadlineExceeded(waited))
      return give_back_behind(std::move(departing), std::move(passed), std::move(done));
    if (!waited.ok()) return poison_(annotate(waited, "the engine's stream"));
    static_cast<void>(caught([&] { departing.local.attachment->end_read(departing.local.source()); }));
    answer([done = std::move(done), number = departing.number] { done(number); });
  });
}

void Preparer::let_go(std::shared_ptr<Attachment> attachment) {
  submit([attachment = std::move(attachment)] {});
}

void Preparer::wait_for(std::shared_ptr<DeviceMark> mark, std::function<void()> done) {
  submit([this, mark = std::move(mark), done = std::move(done)]() mutable {
    if (context_.wait_for(*mark).ok()) answer(std::move(done));
  });
}

// ---- without a sender ----

void Preparer::look(Version newer_than, std::vector<std::shared_ptr<Attachment>> known, BackSet set,
                    std::function<void(Found, bool)> done) {
  if (looking_) return;
  look_ = std::stop_source();
  looking_ = true;
  submit([this, newer_than, known = std::move(known), set = std::move(set), done = std::move(done),
          stop = look_.get_token()]() mutable {
    Found found = out_of_memory();
    if (absl::Status tried = caught([&] { found = context_.find(newer_than, known, set, stop); }); !tried.ok())
      found = std::move(tried);
    answer([this, done = std::move(done), found = std::move(found), stop]() mutable {
      looking_ = false;
      done(std::move(found), stop.stop_requested());
    });
  });
}

}  // namespace bascule::inline v0
