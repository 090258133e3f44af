// The public thread's side, start and end. Membership and rounds have files of their own.
#include "sender/coordinator.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <future>

#include "transport/device.h"
#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;

Coordinator::Coordinator(const Endpoint& endpoint, SenderTransport& transport, EndpointLock lock,
                         std::optional<Token> token, Sink log, Sink trace)
    : endpoint_(endpoint),
      transport_(transport),
      log_(std::move(log)),
      trace_(std::move(trace)),
      lock_(std::move(lock)),
      epoch_(lock_.epoch()),
      published_version_(lock_.last_version()),
      io_(1),
      awake_(io_),
      acceptor_(
          io_, endpoint_, std::move(token),
          [this](const std::shared_ptr<Channel>& channel, Hello hello) { arrive(channel, std::move(hello)); },
          [this](Channel& channel) { describe(channel); },
          [this](const absl::Status& why) {
            last_refusal_ = std::string(message_of(why));
            this->log(cat("refused ", last_refusal_));
            share();
          }),
      heartbeat_timer_(io_),
      round_timer_(io_),
      pipes_(io_, [this](Holder holder) { on_reader_gone(holder); }) {
  shared_.last_version = std::max(lock_.last_version(), transport.last_version());
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::start(const Endpoint& endpoint, SenderTransport& transport,
                                                                EndpointLock lock, std::optional<Token> token, Sink log,
                                                                Sink trace) {
  std::unique_ptr<Coordinator> made(
      new Coordinator(endpoint, transport, std::move(lock), std::move(token), std::move(log), std::move(trace)));
  BASCULE_TRY(made->acceptor_.bind());
  made->delivery_.emplace();
  made->delivery_->submit(own_thread_of_devices);
  made->acceptor_.start();
  made->on_heartbeat_timer();
  made->thread_ = std::thread([coordinator = made.get()] {
    own_thread_of_devices();
    coordinator->io_.run();
  });
  return made;
}

Coordinator::~Coordinator() {
  if (!thread_.joinable()) return;  // never started
  post([this] {
    for (const auto& member : members_) {
      member->channel->send(Bye{});
      member->channel->close();
    }
    members_.clear();
    pipes_.close_all();
    acceptor_.close();
    heartbeat_timer_.cancel();
    round_timer_.cancel();
    io_.stop();
  });
  thread_.join();
  delivery_.reset();  // ends what it has under way
}

template <typename Work>
void Coordinator::post(Work work) {
  asio::post(io_, std::move(work));
}

void Coordinator::log(std::string_view line) const {
  if (log_) log_(line);
}

void Coordinator::share() {
  {
    const std::lock_guard lock(mutex_);
    shared_.addressable.clear();
    shared_.fused.clear();
    shared_.followed = false;
    for (const auto& member : members_) {
      if (member->addressable()) shared_.addressable.push_back(member->name());
      shared_.followed |= member->follows;
      shared_.fused.insert(shared_.fused.end(), member->hello.fused.begin(), member->hello.fused.end());
    }
    shared_.refusal = last_refusal_;
    shared_.holders = ring_ ? names_of(ring_->holders()) : "";
  }
  changed_.notify_all();
}

void Coordinator::register_layout(Layout layout) {
  post([this, layout = std::move(layout)]() mutable {
    layout_ = std::move(layout);
    std::vector<WorkerId> parked;
    for (const auto& member : members_)
      if (member->stage == Member::Stage::kParked) parked.push_back(member->id);
    for (const WorkerId id : parked)
      if (Member* member = find(id)) consider(*member);
    share();
  });
}

std::vector<std::vector<std::string>> Coordinator::fused_wishes() {
  const std::lock_guard lock(mutex_);
  return shared_.fused;
}

void Coordinator::open_slots(std::vector<OfferedSlot> slots, Layout layout, int control_page) {
  post([this, slots = std::move(slots), layout = std::move(layout), control_page]() mutable {
    layout_ = std::move(layout);
    ring_.emplace(epoch_);
    for (const OfferedSlot& slot : slots) slots_[ring_->add().index] = slot;
    control_page_ = control_page;
    std::vector<WorkerId> admitted;
    for (const auto& member : members_)
      if (member->stage == Member::Stage::kAdmitted) admitted.push_back(member->id);
    for (const WorkerId id : admitted)
      if (Member* member = find(id); member != nullptr && member->stage == Member::Stage::kAdmitted) welcome(*member);
    try_take();  // only now, so that the first version is addressed to all of them
  });
}

absl::StatusOr<std::vector<std::string>> Coordinator::wait_for_workers(int count, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto enough = [&] { return shared_.addressable.size() >= static_cast<std::size_t>(count); };
  if (changed_.wait_until(lock, deadline.at(), enough)) return shared_.addressable;
  std::string came;
  for (const std::string& name : shared_.addressable) absl::StrAppend(&came, came.empty() ? ": " : ", ", name);
  return deadline_exceeded("expected ", count, " workers at ", endpoint_.place(), ", found ",
                           shared_.addressable.size(), came,
                           shared_.refusal.empty() ? "" : cat("; the last one refused: ", shared_.refusal));
}

absl::StatusOr<Coordinator::Grant> Coordinator::take(std::vector<std::string> workers, Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (workers.empty() && shared_.ahead) {
    BASCULE_TRY(lock_.record(shared_.last_version + 1));
    return Grant{.version = ++shared_.last_version,
                 .slot = *std::exchange(shared_.ahead, std::nullopt),
                 .followed = shared_.followed,
                 .dropped = std::exchange(shared_.dropped, {})};
  }
  shared_.granted.reset();
  shared_.take_wanted = true;
  shared_.take_for = std::move(workers);
  lock.unlock();
  post([this] { try_take(); });
  lock.lock();
  if (changed_.wait_until(lock, deadline.at(), [&] { return shared_.granted.has_value(); }))
    return *std::exchange(shared_.granted, std::nullopt);
  shared_.take_wanted = false;  // seen by the I/O thread under the same mutex: it takes no slot any more
  return deadline_exceeded("no slot could be written in time: still read by ", shared_.holders, "; stop or restart ",
                           shared_.holders.find(',') == std::string::npos ? "it" : "them");
}

Coordinator::Grant Coordinator::replace(const Grant& grant) {
  std::promise<Grant> replaced;
  post([&] {
    ring_->abort(grant.slot);
    ring_->retire(grant.slot);
    Grant other = grant;  // for the same workers
    other.slot = ring_->add();
    other.is_new = true;
    other.dropped = ring_->take_dropped();  // the one that it replaces among them
    for (const SlotId dropped : other.dropped) forget_slot(dropped);
    ring_->begin(other.slot);
    replaced.set_value(std::move(other));
  });
  return replaced.get_future().get();
}

void Coordinator::give_back(const Grant& grant) {
  post([this, grant] {
    granted_ = false;
    ring_->abort(grant.slot);
    if (grant.is_new) ring_->retire(grant.slot);  // it never had memory
    try_take();
  });
}

void Coordinator::announce(const Grant& grant, std::optional<OfferedSlot> memory, Deadline deadline) {
  post([this, grant, memory, deadline] { on_announce(grant, memory, deadline); });
}

absl::Status Coordinator::wait_yielded(Version version, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto aborted = [&] { return settled_version_ == version && shared_.settled; };
  if (!changed_.wait_until(lock, deadline.at(), [&] { return shared_.yielded == version || aborted(); }))
    return deadline_exceeded("the readers did not step aside for version ", version, " in time");
  if (aborted()) return std::exchange(shared_.settled, std::nullopt)->status();
  return absl::OkStatus();
}

void Coordinator::seal(Version version, std::optional<Digest> digest, Deadline deadline) {
  post([this, version, digest, deadline] {
    writer_busy_ = false;
    if (!round_ || round_->publication().version != version) return;
    torn_ = endpoint_.slots == 1;  // what a single copy held before is gone
    if (round_->under_way()) {
      ring_->stage(round_->publication().slot, version);
      round_->sealed(digest);
      round_until_ = deadline.at();
      arm_round_timer(round_until_);
    }
    advance(*round_, nullptr);
  });
}

void Coordinator::abandon(Version version, absl::Status why, bool torn) {
  post([this, version, why = std::move(why), torn] {
    writer_busy_ = false;
    torn_ = torn;
    if (!round_ || round_->publication().version != version) return;
    round_->abort(why);
    advance(*round_, nullptr);
  });
}

std::optional<absl::StatusOr<SendReport>> Coordinator::wait_settled(Version version, Deadline deadline,
                                                                    absl::Duration awake) {
  const auto sleeps_at = std::min(Deadline(awake).at(), deadline.at());
  while (settled_version_ != version && Clock::now() < sleeps_at) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  const auto settled = [&] { return settled_version_ == version && shared_.settled; };
  if (!changed_.wait_until(lock, deadline.at(), settled)) return std::nullopt;
  return std::exchange(shared_.settled, std::nullopt);
}

void Coordinator::share_settled(Version version, absl::StatusOr<SendReport> settled) {
  {
    const std::lock_guard lock(mutex_);
    shared_.settled = std::move(settled);
    settled_version_ = version;
  }
  changed_.notify_all();
}

}  // namespace bascule
