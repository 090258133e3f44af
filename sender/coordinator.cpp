// The public thread's side, start and end. Membership and rounds have files of their own.
#include "sender/coordinator.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/post.hpp>

#include "transport/text.h"

namespace bascule {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;

Coordinator::Coordinator(const Endpoint& endpoint, const Scheme& scheme, EndpointLock lock, Log log)
    : endpoint_(endpoint),
      scheme_(scheme),
      log_(std::move(log)),
      lock_(std::move(lock)),
      epoch_(lock_.epoch()),
      published_version_(lock_.last_version()),
      io_(1),
      acceptor_(io_),
      heartbeat_timer_(io_),
      round_timer_(io_),
      pipes_(io_, [this](Holder holder) { on_reader_gone(holder); }),
      transport_(scheme.make_sender()),
      last_version_(lock_.last_version()) {}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::start(const Endpoint& endpoint, const Scheme& scheme,
                                                                EndpointLock lock, Log log) {
  std::unique_ptr<Coordinator> made(new Coordinator(endpoint, scheme, std::move(lock), std::move(log)));
  BASCULE_TRY(made->bind());
  made->delivery_ = std::make_unique<Delivery>(*made->transport_);
  made->accept_next();
  made->on_heartbeat_timer();
  made->thread_ = std::thread([coordinator = made.get()] { coordinator->io_.run(); });
  return made;
}

absl::Status Coordinator::bind() {
  const std::string path = endpoint_.control_socket().string();
  ::unlink(path.c_str());  // left by a sender that died: we hold the lock
  boost::system::error_code error;
  acceptor_.open(Local(), error);
  if (!error) ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!error) acceptor_.bind(Local::endpoint(path), error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return errno_status(error.value(), cat("bind the control socket ", path));
  return absl::OkStatus();
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
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    heartbeat_timer_.cancel();
    round_timer_.cancel();
    io_.stop();
  });
  thread_.join();
  delivery_.reset();  // before the transport that it runs
  ::unlink(endpoint_.control_socket().c_str());
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
    for (const auto& member : members_)
      if (member->addressable()) shared_.addressable.push_back(member->name());
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

void Coordinator::open_slots(std::vector<OfferedSlot> slots, int control_page) {
  post([this, slots = std::move(slots), control_page]() mutable {
    ring_.emplace(epoch_, static_cast<int>(slots.size()));
    slots_ = std::move(slots);
    control_page_ = control_page;
    std::vector<WorkerId> admitted;
    for (const auto& member : members_)
      if (member->stage == Member::Stage::kAdmitted) admitted.push_back(member->id);
    for (const WorkerId id : admitted)
      if (Member* member = find(id)) welcome(*member);
    try_begin();  // only now, so that the first version is addressed to all of them
  });
}

absl::StatusOr<std::vector<std::string>> Coordinator::wait_for_workers(int count, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const auto enough = [&] { return shared_.addressable.size() >= static_cast<std::size_t>(count); };
  if (changed_.wait_until(lock, deadline.at(), enough)) return shared_.addressable;
  std::string came;
  for (const std::string& name : shared_.addressable) absl::StrAppend(&came, came.empty() ? ": " : ", ", name);
  return deadline_exceeded("expected ", count, " workers at ", endpoint_.folder.string(), ", found ",
                           shared_.addressable.size(), came,
                           shared_.refusal.empty() ? "" : cat("; the last one refused: ", shared_.refusal));
}

absl::StatusOr<Publication> Coordinator::begin(Deadline deadline) {
  std::unique_lock lock(mutex_);
  shared_.begun.reset();
  shared_.begin_wanted = true;
  lock.unlock();
  post([this] { try_begin(); });
  lock.lock();
  if (changed_.wait_until(lock, deadline.at(), [&] { return shared_.begun.has_value(); }))
    return *std::move(shared_.begun);
  shared_.begin_wanted = false;  // seen by the I/O thread under the same mutex: it takes no slot any more
  return deadline_exceeded("no slot could be written in time: still read by ", shared_.holders, "; stop or restart ",
                           shared_.holders.find(',') == std::string::npos ? "it" : "them");
}

void Coordinator::seal(Version version, std::optional<Digest> digest, Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    shared_.settled.reset();
  }
  post([this, version, digest, deadline] {
    writer_busy_ = false;
    if (!round_ || round_->publication().version != version) return;
    if (round_->under_way()) {
      ring_->stage(round_->publication().slot, version);
      round_->sealed(digest);
      round_until_ = deadline.at();
      arm_round_timer(round_until_);
    }
    advance(*round_, nullptr);
  });
}

void Coordinator::abandon(Version version, absl::Status why) {
  post([this, version, why = std::move(why)] {
    writer_busy_ = false;
    if (!round_ || round_->publication().version != version) return;
    round_->abort(why);
    advance(*round_, nullptr);
  });
}

std::optional<absl::StatusOr<SendReport>> Coordinator::wait_settled(Deadline deadline) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, deadline.at(), [&] { return shared_.settled.has_value(); });
  return std::exchange(shared_.settled, std::nullopt);
}

}  // namespace bascule
