// The I/O thread: carries out actions.
#include <fcntl.h>

#include <algorithm>
#include <utility>

#include <bascule/sender/coordinator.h>
#include <bascule/transport/kept_slots.h>
#include <bascule/transport/posix/peer.h>
#include <bascule/transport/post_surely.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::inline v0 {

// ---- to workers ----

void Coordinator::trace_to(const Connection& connection, const Message& message) const noexcept {
  if (trace_) static_cast<void>(caught([&] { trace_(cat("to ", connection.name, ": ", name_of(message))); }));
}

void Coordinator::carry_out(action::Say& say) {
  const auto encoded = std::make_shared<const EncodedMessage>(say.message);
  for (const WorkerId id : say.to) {
    const Connection* connection = find(id);
    if (connection == nullptr) continue;
    trace_to(*connection, say.message);
    connection->channel->send(encoded);
  }
}

void Coordinator::carry_out(action::Admit& admit) {
  handle(event::Admitted{.id = admit.id, .status = caught([&] { return this->admit(admit); })});
}

// Returns a scheme's offer in a form that a message can carry.
absl::StatusOr<Offer> Coordinator::offer_of(WorkerId worker, ConnectionKind kind, std::span<const OfferedSlot> slots) {
  BASCULE_ASSIGN(Offer offer, transport_.offer(worker, kind, slots));
  if (offer.descriptors.size() > kMostOffered)
    return absl::InternalError(cat("scheme ", endpoint_.scheme, " offers ", offer.descriptors.size(),
                                   " descriptors, expected ", kMostOffered, " at most"));
  for (const int descriptor : offer.descriptors)
    if (::fcntl(descriptor, F_GETFD) < 0)
      return absl::InternalError(
          cat("scheme ", endpoint_.scheme, " offers descriptor ", descriptor, ", which is not open"));
  return offer;
}

absl::Status Coordinator::admit(action::Admit& admit) {
  Connection* const connection = find(admit.id);
  const Member* const member = fleet_.roster().find(admit.id);
  if (connection == nullptr || member == nullptr) return unavailable("it left");
  BASCULE_ASSIGN(Offer offer, offer_of(admit.id, connection->kind, admit.slots));
  connection->admitted = true;
  ProcessFd lease;
  if (connection->kind == ConnectionKind::kTcp) {
    if (!offer.descriptors.empty())
      return absl::InternalError(cat("scheme ", endpoint_.scheme, " offers descriptors over TCP"));
  } else {
    const ProcessMark process = mark_of(pid_of_peer(connection->channel->descriptor()));
    BASCULE_ASSIGN(lease, pipes_.open(member->holder(), process));
    offer.descriptors.push_back(control_page_);
    offer.descriptors.push_back(lease.get());
  }
  admit.welcome.offer = std::move(offer.bytes);
  trace_to(*connection, admit.welcome);
  connection->channel->send(admit.welcome, offer.descriptors);
  return absl::OkStatus();
}

void Coordinator::carry_out(action::Offer& offer) {
  handle(event::Offered{.id = offer.id, .status = caught([&] { return this->offer(offer); })});
}

absl::Status Coordinator::offer(action::Offer& offered) {
  Connection* const connection = find(offered.id);
  const Member* const member = fleet_.roster().find(offered.id);
  if (connection == nullptr || member == nullptr) return unavailable("it left");
  BASCULE_ASSIGN(Offer offer, offer_of(offered.id, connection->kind, std::span(&offered.slot, 1)));
  offered.prepare.offer = std::move(offer.bytes);
  trace_to(*connection, offered.prepare);
  connection->channel->send(offered.prepare, offer.descriptors);
  return absl::OkStatus();
}

void Coordinator::carry_out(action::Close& close) {
  const auto found = connections_.find(close.id);
  if (found == connections_.end()) return;
  const Message refused = Refused{.why = std::string(message_of(close.why)), .final = close.final};
  const Connection connection = std::move(found->second);
  connections_.erase(found);
  trace_to(connection, refused);
  connection.channel->send(refused);
  connection.channel->close();
  if (connection.admitted) report(until_done([&] { transport_.remove(close.id); }));
}

void Coordinator::carry_out(action::CloseLeases& leases) { pipes_.close(leases.holder); }

void Coordinator::carry_out(action::ReadQueued& read) {
  for (const WorkerId id : read.from)
    if (const Connection* connection = find(id)) connection->channel->read_queued();
  handle(event::AllRead{});
}

// ---- the scheme ----

void Coordinator::carry_out(action::Deliver& deliver) {
  const absl::Status begun = caught([&] {
    moves_->deliver(
        {.number = deliver.ticket,
         .publication = deliver.publication,
         .workers = std::move(deliver.to),
         .memory = deliver.slot.memory,
         .bytes_done = deliver.slot.bytes_done},
        [this, ticket = deliver.ticket](absl::Status status) {
          post_surely(io_, [this, ticket, status = std::move(status)] { handle(event::Delivered{ticket, status}); });
        });
  });
  if (!begun.ok()) handle(event::Delivered{deliver.ticket, begun});
}

void Coordinator::carry_out(action::StopDelivery& stopped) { moves_->stop(stopped.ticket); }

template <typename Work>
void Coordinator::post_for(WorkerId worker, Work work) {
  post_surely(io_, [this, worker, work = std::move(work)] {
    if (absl::Status done = caught(work); !done.ok()) handle(event::HungUp{worker, std::move(done)});
  });
}

void Coordinator::deliver(WorkerId worker, Version version, std::string bytes) {
  post_for(worker, [this, worker, message = Message(Deliver{.version = version, .bytes = std::move(bytes)})] {
    const Connection* const connection = find(worker);
    if (connection == nullptr) return;
    trace_to(*connection, message);
    connection->channel->send(message);
  });
}

void Coordinator::say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors) {
  post_for(worker,
           [this, worker, message = Message(Transport{std::move(bytes)}), descriptors = std::move(descriptors)] {
             const Connection* const connection = find(worker);
             if (connection == nullptr) return;
             trace_to(*connection, message);
             connection->channel->send(message, numbers_of(descriptors));
           });
}

void Coordinator::give_up(WorkerId worker, absl::Status why) {
  post_surely(io_, [this, worker, why = std::move(why)] { handle(event::GivenUp{worker, why}); });
}

void Coordinator::log(std::string line) {
  post_surely(io_, [this, log = action::Log{.line = std::move(line), .is_warning = true, .by_peer = true}]() mutable {
    static_cast<void>(caught([&] { carry_out(log); }));
  });
}

void Coordinator::post(std::function<void()> work) { post_surely(io_, std::move(work)); }

// ---- the scheme, on the storage thread ----

void Coordinator::carry_out(action::Publish& publish) {
  storage_->submit([this, &kept = *transport_.kept_slots(), publish] {
    absl::Status status = caught([&] { return kept.publish(publish.publication); });
    std::vector<std::string> warnings;
    static_cast<void>(caught([&] { warnings = kept.take_warnings(); }));
    post_surely(io_,
                [this, ticket = publish.ticket, status = std::move(status), warnings = std::move(warnings)]() mutable {
                  handle(event::Published{ticket, std::move(status), std::move(warnings)});
                });
  });
}

void Coordinator::carry_out(action::Persist& persist) {
  storage_->submit([this, &kept = *transport_.kept_slots(), persist,
                    deadline = Deadline(endpoint_.timeout + endpoint_.flip_timeout)] {
    absl::Status status = caught([&] { return kept.persist(persist.publication, deadline); });
    post_surely(io_, [this, ticket = persist.ticket, status = std::move(status)] {
      handle(event::Persisted{ticket, status});
    });
  });
}

// ---- to the public thread ----

void Coordinator::carry_out(action::GrantSlot& granted) {
  {
    const std::lock_guard lock(mutex_);
    if (granted.grant.ok()) granted.grant->dropped = std::exchange(shared_.dropped, {});
    shared_.granted = std::move(granted.grant);
  }
  changed_.notify_all();
}

void Coordinator::carry_out(action::TakeAhead& taken) {
  const std::lock_guard lock(mutex_);
  shared_.ahead = taken.slot;
}

void Coordinator::carry_out(action::DropSlot& dropped) {
  const std::lock_guard lock(mutex_);
  shared_.dropped.push_back(dropped.slot);
}

void Coordinator::carry_out(action::MayWrite& written) {
  {
    const std::lock_guard lock(mutex_);
    shared_.yielded = written.version;
  }
  changed_.notify_all();
}

void Coordinator::carry_out(action::EndLoan& ended) {
  bool in_time = false;
  {
    const std::lock_guard lock(mutex_);
    in_time = shared_.loan_ended == ended.version;
    if (!in_time) shared_.lapsed = ended.version;
  }
  handle(event::LoanEnded{.version = ended.version, .in_time = in_time});
}

void Coordinator::carry_out(action::Settle& settled) {
  {
    const std::lock_guard lock(mutex_);
    shared_.settled = std::move(settled.report);
    settled_version_ = settled.version;
  }
  changed_.notify_all();
}

void Coordinator::carry_out(action::NumberAbove& number) {
  const std::lock_guard lock(mutex_);
  shared_.last_version = std::max(shared_.last_version, number.version);
}

// ---- time, and logs ----

void Coordinator::carry_out(action::WakeAt& wake) {
  deadline_timer_.expires_at(wake.at);
  deadline_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) handle(event::Tick{});
  });
}

void Coordinator::carry_out(action::KeepAwake& keep) { keep.on ? awake_.begin() : awake_.end(); }

void Coordinator::carry_out(action::Log& log) {
  const Sink& sink = log.is_warning ? warn_ : log_;
  if (!sink) return;
  std::optional<std::string> line = one_line(log.line);
  if (log.by_peer) line = (log.is_warning ? warn_limit_ : log_limit_).pass(*line, Clock::now());
  if (line) sink(*line);
}

}  // namespace bascule::inline v0
