// The I/O thread: start, end, and the sources of events.
#include <bascule/sender/coordinator.h>

#include <unistd.h>

#include <algorithm>

#include <bascule/transport/descriptor_limit.h>
#include <bascule/transport/device.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/post_surely.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

namespace {

// How many workers that left with a lease are watched until their processes are gone, each for one descriptor; at most
// a quarter of this process's.
constexpr std::size_t kMostLeftBehind = 1024;

}  // namespace

Coordinator::Coordinator(const Endpoint& endpoint, SenderTransport& transport, EndpointLock lock,
                         std::optional<Token> token, CoordinatorOptions options)
    : endpoint_(endpoint),
      beside_(endpoint.beside()),
      transport_(transport),
      moves_(transport.delivery()),
      log_(unfailing(std::move(options.log))),
      warn_(unfailing(std::move(options.warn))),
      trace_(unfailing(std::move(options.trace))),
      interrupted_(std::move(options.interrupted)),
      on_rank_(std::move(options.on_rank)),
      ranks_(std::move(options.ranks)),
      watch_ranks_(std::move(options.watch_ranks)),
      lock_(std::move(lock)),
      epoch_(lock_.epoch()),
      published_version_(lock_.last_version()),
      io_(1),
      awake_(io_),
      heartbeat_timer_(io_),
      deadline_timer_(io_),
      pipes_(io_, [this](Holder holder, bool ended) { handle(event::HolderGone{.holder = holder, .ended = ended}); }),
      fleet_(rules(std::move(options.compatibility_key), std::move(options.expect_workers))) {
  shared_.last_version = fleet_.versions().used();
  if (beside_) acceptors_.push_back(acceptor(*beside_, token));
  acceptors_.push_back(acceptor(endpoint_, endpoint_.over_tcp() ? std::move(token) : std::nullopt));
}

std::unique_ptr<Acceptor> Coordinator::acceptor(const Endpoint& endpoint, std::optional<Token> token) {
  const ConnectionKind kind = endpoint.over_tcp() ? ConnectionKind::kTcp : ConnectionKind::kUnixSocket;
  return std::make_unique<Acceptor>(
      io_, endpoint, lock_.folder(), std::move(token), epoch_,
      [this, kind](const std::shared_ptr<Channel>& channel, Hello hello) { arrive(channel, std::move(hello), kind); },
      [this, kind](Channel& channel) { describe(channel, kind); }, on_rank_,
      [this](const absl::Status& why) {
        report(caught([&] { handle(event::ConnectionRefused{std::string(message_of(why))}); }));
      });
}

FleetRules Coordinator::rules(std::string compatibility_key, ExpectedWorkers expected) const {
  KeptSlots* const kept = transport_.kept_slots();
  return {.endpoint = endpoint_,
          .compatibility_key = std::move(compatibility_key),
          .expected = std::move(expected),
          .epoch = epoch_,
          .published = lock_.last_version(),
          .used = std::max(lock_.last_version(), kept != nullptr ? kept->last_version() : 0),
          .delivers = moves_ != nullptr,
          .publishes = kept != nullptr,
          .persists = kept != nullptr && kept->persists(),
          .delivers_while_written = moves_ != nullptr && moves_->starts_while_written(),
          .fresh_slots = kept != nullptr && kept->fresh_slots(),
          .most_left_behind = share_of_descriptors(kMostLeftBehind, 4)};
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::start(const Endpoint& endpoint, SenderTransport& transport,
                                                                EndpointLock lock, std::optional<Token> token,
                                                                CoordinatorOptions options) {
  std::unique_ptr<Coordinator> made(
      new Coordinator(endpoint, transport, std::move(lock), std::move(token), std::move(options)));
  for (const auto& acceptor : made->acceptors_) BASCULE_TRY(acceptor->bind());
  made->watch_.add(endpoint.lock_file());
  if (!endpoint.over_tcp()) made->watch_.add(endpoint.control_socket());
  made->storage_.emplace();
  made->storage_->submit(own_thread_of_devices);
  if (made->moves_ != nullptr) made->moves_->open(*made);
  for (const auto& acceptor : made->acceptors_) acceptor->start();
  made->beat();
  made->thread_ = std::thread([coordinator = made.get()] {
    own_thread_of_devices();
    run_surely(coordinator->io_, [coordinator](const absl::Status& why) { coordinator->report(why); });
  });
  return made;
}

Coordinator::~Coordinator() {
  if (!thread_.joinable()) return;  // never started
  post_surely(io_, [this] {
    for (const auto& [id, connection] : connections_) {
      connection.channel->send(Bye{});
      connection.channel->close();
    }
    connections_.clear();
    pipes_.close_all();
    for (const auto& acceptor : acceptors_) acceptor->close();
    heartbeat_timer_.cancel();
    deadline_timer_.cancel();
    io_.stop();
  });
  thread_.join();
  if (moves_ != nullptr) moves_->close();  // nothing else calls it any longer
  storage_.reset();                        // ends its current task
}

// ---- the sources of events ----

// Actions are carried out in the order in which the fleet requested them. If one is answered at once, this function is
// called recursively: the fleet handles that event now, and the resulting actions are queued after the others.
//
// No action is lost if memory runs out: each carry_out() either changes nothing before it has its memory, or does the
// same when it is called again.
void Coordinator::handle(Event event) noexcept {
  std::vector<Action> actions = fleet_.on(std::move(event), Clock::now());
  std::size_t taken = 0;
  static_cast<void>(until_done([&] {
    for (; taken < actions.size(); ++taken) actions_.push_back(std::move(actions[taken]));
  }));
  show();
  if (std::exchange(carrying_out_, true)) return;
  while (!actions_.empty()) {
    Action action = std::move(actions_.front());
    actions_.pop_front();
    report(until_done([&] { std::visit([this](auto& each) { carry_out(each); }, action); }));
  }
  carrying_out_ = false;
}

// A defect in this library or the scheme, or the user's log or trace threw. None of them ends the user's process.
void Coordinator::report(const absl::Status& why) noexcept {
  if (!why.ok() && warn_) static_cast<void>(caught([&] { warn_(cat("the sender's thread: ", message_of(why))); }));
}

// Runs before a refused worker is told, so that the public thread no longer counts that worker.
void Coordinator::show() {
  published_version_.store(fleet_.published(), std::memory_order_relaxed);
  const std::size_t addressable = fleet_.roster().addressable();
  const bool in_pieces = fleet_.writes_in_pieces();
  if (addressable == shown_addressable_ && in_pieces == shown_in_pieces_) return;
  shown_addressable_ = addressable;
  shown_in_pieces_ = in_pieces;
  {
    const std::lock_guard lock(mutex_);
    shared_.addressable = addressable;
    shared_.in_pieces = in_pieces;
  }
  changed_.notify_all();
}

void Coordinator::arrive(const std::shared_ptr<Channel>& channel, Hello hello, ConnectionKind kind) {
  const WorkerId id = next_worker_++;
  const absl::Status arrived = caught([&] {
    connections_[id] = {.channel = channel, .name = hello.worker, .kind = kind};
    channel->start(
        [this, id](Message message, std::vector<UniqueFd> descriptors) {
          hear(id, std::move(message), std::move(descriptors));
        },
        [this, id](const absl::Status& why) {
          handle(event::HungUp{id, why});
        });
  });
  if (!arrived.ok()) {
    connections_.erase(id);
    channel->close();
    return report(arrived);
  }
  handle(event::Greeted{id, std::move(hello), kind});
}

// Messages between the scheme's two ends go only to the scheme.
void Coordinator::hear(WorkerId id, Message message, std::vector<UniqueFd> descriptors) {
  const Connection& connection = connections_.at(id);
  auto* const transport = std::get_if<Transport>(&message);
  if (transport == nullptr && !descriptors.empty())
    return handle(event::HungUp{id, invalid_argument(name_of(message), " came with descriptors")});
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (trace_) trace_(cat("from ", connection.name, ": ", name_of(message)));
  if (transport == nullptr) return handle(event::Heard{id, std::move(message)});
  if (moves_ == nullptr || !connection.admitted)
    return handle(
        event::HungUp{id, invalid_argument(moves_ == nullptr ? cat("scheme ", endpoint_.scheme, " has no messages")
                                                             : "it is not welcomed yet",
                                           ", and the worker sent ", name_of(message))});
  moves_->heard(id, std::move(transport->bytes), std::move(descriptors));
}

Coordinator::Connection* Coordinator::find(WorkerId id) {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : &found->second;
}

// Once per heartbeat: shows that this sender lives, and gives up workers that have fallen silent. This thread may have
// stood still, so it reads the messages in their sockets before it judges them.
void Coordinator::beat() {
  report(caught([this] { send_heartbeats(); }));
  report(until_done([this] {
    heartbeat_timer_.expires_after(on_clock(endpoint_.heartbeat));
    heartbeat_timer_.async_wait([this](const boost::system::error_code& error) {
      if (!error) beat();
    });
  }));
}

void Coordinator::send_heartbeats() {
  const auto is_silent = [this](const Connection& connection) {
    return Clock::now() - connection.channel->last_heard() > on_clock(endpoint_.suspect_after);
  };
  const auto heartbeat = std::make_shared<const EncodedMessage>(Heartbeat{});
  std::vector<WorkerId> silent;
  for (const auto& [id, connection] : connections_) {
    if (is_silent(connection)) silent.push_back(id);
    connection.channel->send(heartbeat);
  }
  for (const WorkerId id : silent)
    if (const Connection* connection = find(id)) connection->channel->read_queued();
  for (const WorkerId id : silent)
    if (const Connection* connection = find(id); connection != nullptr && is_silent(*connection))
      handle(event::HungUp{id, unavailable("fell silent for ", absl::FormatDuration(endpoint_.suspect_after))});
  look_for_orphans();
  watch_endpoint();
  if (watch_ranks_) watch_ranks_();
}

// Workers whose process has ended, though a child that it forked still has the worker's lease. The storage thread
// looks, because /proc may have many descriptors.
void Coordinator::look_for_orphans() {
  if (looking_) {
    look_again_ = true;
    return;
  }
  const SlotAllocator& slots = fleet_.slot_allocator();
  std::vector<Holder> left(slots.left_behind().begin(), slots.left_behind().end());
  std::erase_if(left, [&](Holder holder) { return slots.is_orphaned(holder); });
  std::vector<LeasePipes::Search> searches = pipes_.searches(left);
  if (searches.empty()) return;
  storage_->submit([this, searches = std::move(searches)] {
    std::vector<LeasePipes::Found> all;
    static_cast<void>(caught([&] { all = LeasePipes::find(searches); }));  // else the next look finds them
    post_surely(io_, [this, all = std::move(all)]() mutable {
      looking_ = false;
      for (LeasePipes::Found& found : all)
        if (pipes_.found(found)) handle(event::LeftRunning{.holder = found.holder, .who = std::move(found.who)});
      if (std::exchange(look_again_, false)) look_for_orphans();
    });
  });
  looking_ = true;
}

// Once per heartbeat, until something is missing. The storage thread looks, so that a slow file system delays no
// member.
void Coordinator::watch_endpoint() {
  if (watching_ || !fleet_.missing().empty()) return;
  storage_->submit([this] {
    std::optional<std::string> missing;
    static_cast<void>(caught([&] { missing = watch_.missing(); }));  // else the next look finds it
    post_surely(io_, [this, missing = std::move(missing)]() mutable {
      watching_ = false;
      if (missing) handle(event::EndpointMissing{*std::move(missing)});
    });
  });
  watching_ = true;
}

// Answers a status query. On a Unix socket the answer includes an offer, made for a worker id that is removed at once.
void Coordinator::describe(Channel& channel, ConnectionKind kind) {
  std::optional<SlotId> untouched;
  {
    const std::lock_guard lock(mutex_);
    untouched = shared_.ahead;
  }
  SenderStatus status = fleet_.status(untouched);
  status.pid = ::getpid();
  if (ranks_) status.ranks = ranks_();
  std::map<std::string_view, WorkerId> admitted;
  for (const auto& [id, connection] : connections_)
    if (connection.admitted) admitted[connection.name] = id;
  for (WorkerStatus& worker : status.workers)
    if (const auto found = admitted.find(worker.worker); found != admitted.end() && worker.state != "gone")
      worker.path = transport_.path(found->second);
  std::vector<int> descriptors;
  if (fleet_.slot_allocator().is_open() && kind == ConnectionKind::kUnixSocket) {
    const WorkerId id = next_worker_++;
    const std::vector<OfferedSlot> offered = fleet_.slot_allocator().offered();
    if (absl::StatusOr<Offer> offer = offer_of(id, kind, offered); offer.ok()) {
      transport_.remove(id);
      status.offer = std::move(offer->bytes);
      for (const OfferedSlot& slot : offered) status.offered.push_back(slot.id.index);
      descriptors = std::move(offer->descriptors);
      descriptors.push_back(control_page_);
    }
  }
  channel.send(status, descriptors);
}

}  // namespace bascule::inline v0
