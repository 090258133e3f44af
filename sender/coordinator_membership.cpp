// Who is at the endpoint: greetings, welcomes, refusals, heartbeats, evictions. I/O thread.
#include <algorithm>

#include "sender/coordinator.h"
#include "transport/posix/peer.h"
#include "transport/text.h"

#include <unistd.h>

namespace bascule {

namespace asio = boost::asio;
using Local = asio::local::stream_protocol;

void Coordinator::accept_next() {
  acceptor_.async_accept([this](const boost::system::error_code& error, Local::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) {
      auto member = std::make_unique<Member>();
      member->id = next_worker_++;
      member->since = Clock::now();
      const absl::Status peer = check_peer(socket.native_handle(), ::geteuid());
      member->channel = std::make_shared<Channel>(Channel::Socket(std::move(socket)));
      const WorkerId id = member->id;
      members_.push_back(std::move(member));
      if (!peer.ok()) {
        refuse(id, peer);
      } else {
        find(id)->channel->start(
            [this, id](Message message, const std::vector<UniqueFd>& descriptors) {
              if (!descriptors.empty()) return evict(id, invalid_argument(name_of(message), " came with descriptors"));
              on_message(id, std::move(message));
            },
            [this, id](const absl::Status& why) { evict(id, why); });
      }
    }
    accept_next();
  });
}

Member* Coordinator::find(WorkerId id) {
  const auto found = std::ranges::find_if(members_, [id](const auto& member) { return member->id == id; });
  return found == members_.end() ? nullptr : found->get();
}

std::string Coordinator::names_of(const std::vector<Holder>& holders) const {
  std::string names;
  for (const Holder holder : holders) {
    const auto known = holder_names_.find(holder);
    absl::StrAppend(&names, names.empty() ? "" : ", ",
                    known == holder_names_.end() ? "a worker of before" : known->second);
  }
  return names;
}

void Coordinator::greet(WorkerId id, Hello hello) {
  if (hello.protocol != kProtocol)
    return refuse(id, invalid_argument("the worker speaks protocol ", hello.protocol, ", expected ", kProtocol,
                                       "; run the same version of Bascule on both ends"));
  if (hello.worker.empty()) return refuse(id, invalid_argument("the worker has no name; give it one"));
  if (!hello.group.empty() || hello.ranks != 1)
    return refuse(id, unimplemented("worker ", hello.worker, " asks for group '", hello.group,
                                    "'; groups are not in this version"));
  if (!hello.fused.empty())
    return refuse(id, unimplemented("worker ", hello.worker, " asks for fused tensors; they are not in this version"));
  const auto namesake = std::ranges::find_if(
      members_, [&](const auto& member) { return member->id != id && member->name() == hello.worker; });
  if (namesake != members_.end()) {
    if ((*namesake)->hello.instance != hello.instance)
      return refuse(
          id, absl::AlreadyExistsError(cat("another worker named ", hello.worker, " (pid ", (*namesake)->hello.pid,
                                           ") is connected; give each worker its own name")));
    evict((*namesake)->id, unavailable("worker ", hello.worker, " came back on a new connection"));
  }
  Member* member = find(id);
  if (member == nullptr) return;
  last_version_ = std::max(last_version_, hello.serving);
  for (const HeldSlot& held : hello.held) last_version_ = std::max(last_version_, held.version);
  member->serving = hello.epoch == epoch_ ? hello.serving : 0;  // of an older sender: to be caught up
  member->hello = std::move(hello);
  member->stage = Member::Stage::kParked;
  consider(*member);
  try_begin();  // leases that it no longer claims may have freed a slot
  share();
}

void Coordinator::consider(Member& member) {
  if (!layout_) return;
  if (member.hello.expected)
    if (absl::Status fits = layout_->check_expected(*member.hello.expected); !fits.ok())
      return refuse(member.id, annotate(fits, cat("worker ", member.name())));
  member.stage = Member::Stage::kAdmitted;
  if (ring_) welcome(member);
}

void Coordinator::welcome(Member& member) {
  const WorkerId id = member.id;
  absl::StatusOr<Offer> offer = transport_->admit(id, member.hello, slots_);
  if (!offer.ok()) return refuse(id, annotate(offer.status(), cat("worker ", member.name())));
  absl::StatusOr<UniqueFd> lease = pipes_.open(member.hello.instance);
  if (!lease.ok()) return refuse(id, lease.status());

  holder_names_[member.hello.instance] = member.name();

  // Of the leases that it had, those that it still claims live on.
  std::vector<SlotId> held;
  for (const HeldSlot& slot : member.hello.held) held.push_back(slot.slot);
  ring_->keep_only(member.hello.instance, held);

  Welcome message{
      .id = id, .epoch = epoch_, .layout = *layout_, .digest = endpoint_.digest, .offer = offer->bytes, .slots = {}};
  for (const OfferedSlot& slot : slots_) message.slots.push_back(slot.id.index);
  std::vector<int> descriptors = offer->descriptors;
  descriptors.push_back(control_page_);
  descriptors.push_back(lease->get());
  member.channel->send(message, descriptors);
  member.stage = Member::Stage::kWelcomed;
  log(cat("worker ", member.name(), " joined (pid ", member.hello.pid, ", serving version ", member.serving, ")"));
  start_catch_up(member);
}

void Coordinator::refuse(WorkerId id, const absl::Status& why) {
  Member* member = find(id);
  if (member == nullptr) return;
  last_refusal_ = std::string(message_of(why));
  // Another worker of the same name may go, memory come free; other tensors will not become the same.
  const bool may_pass = absl::IsAlreadyExists(why) || absl::IsUnavailable(why) || absl::IsResourceExhausted(why);
  member->channel->send(Refused{.why = last_refusal_, .final = !may_pass});
  forget(id, why);
}

void Coordinator::evict(WorkerId id, absl::Status why) {
  Member* member = find(id);
  if (member == nullptr) return;
  why = member->stage == Member::Stage::kGreeting ? std::move(why) : annotate(why, cat("worker ", member->name()));
  member->channel->send(Refused{.why = std::string(message_of(why)), .final = false});
  forget(id, why);
}

void Coordinator::forget(WorkerId id, const absl::Status& why) {
  const auto found = std::ranges::find_if(members_, [id](const auto& member) { return member->id == id; });
  const std::unique_ptr<Member> member = std::move(*found);
  members_.erase(found);
  member->channel->close();
  if (member->stage == Member::Stage::kWelcomed) transport_->dismiss(id);
  log(cat("gave up ", member->name().empty() ? "a connection" : member->name(), ": ", message_of(why)));
  // Its leases stay until the pipe hangs up: it may still be reading.
  if (round_ && round_->under_way()) {
    round_->lost(id, why);
    advance(*round_, nullptr);
  }
  share();
}

void Coordinator::on_message(WorkerId id, Message message) {
  Member* member = find(id);
  if (member == nullptr) return;
  if (auto* hello = std::get_if<Hello>(&message)) {
    if (member->stage != Member::Stage::kGreeting) return evict(id, invalid_argument("greeted twice"));
    return greet(id, std::move(*hello));
  }
  if (member->stage == Member::Stage::kGreeting)
    return refuse(id, invalid_argument("expected hello as the first message, found ", name_of(message)));
  if (std::holds_alternative<Heartbeat>(message)) return;
  if (std::holds_alternative<Bye>(message)) return evict(id, unavailable("said goodbye"));
  if (member->stage != Member::Stage::kWelcomed) return while_it_waits(*member, message);

  // A worker is in one round at a time: its own catch-up, or the one that the public thread began.
  Round* round = member->catch_up ? member->catch_up.get() : round_.get();
  const auto concerns = [&](Version version) { return round != nullptr && round->publication().version == version; };
  if (const auto* ready = std::get_if<Ready>(&message)) {
    if (concerns(ready->version)) round->ready(id);
  } else if (const auto* prepared = std::get_if<Prepared>(&message)) {
    if (concerns(prepared->version)) round->prepared(id);
    member->failures = 0;
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    if (++member->failures >= 2)
      return evict(id,
                   absl::AbortedError(cat("poisoned: failed two versions running, the last because: ", failed->why)));
    if (concerns(failed->version)) round->failed(id, failed->why);
  } else if (const auto* ack = std::get_if<Ack>(&message)) {
    member->serving = std::max(member->serving, ack->version);
    if (concerns(ack->version)) round->acked(id, ack->seconds, ack->stall_seconds);
  } else if (const auto* released = std::get_if<Released>(&message)) {
    if (ring_) ring_->release(released->slot, member->hello.instance);
    if (member->releasing == released->slot) member->releasing.reset();
    start_catch_up(*member);  // again, where the last one failed
    try_begin();
    return share();
  } else {
    return evict(id, invalid_argument(name_of(message), " is not a worker's message"));
  }
  if (round != nullptr) advance(*round, member->catch_up ? member : nullptr);
}

// A worker that greeted and waits may flip to a version of before: what it says of that mends its greeting.
void Coordinator::while_it_waits(Member& member, const Message& message) {
  if (const auto* ack = std::get_if<Ack>(&message)) {
    last_version_ = std::max(last_version_, ack->version);
    if (member.hello.epoch == epoch_) member.serving = std::max(member.serving, ack->version);
  } else if (const auto* released = std::get_if<Released>(&message)) {
    std::erase_if(member.hello.held, [released](const HeldSlot& held) { return held.slot == released->slot; });
  } else {
    evict(member.id, invalid_argument(name_of(message), " came before the welcome"));
  }
}

// Its lease pipe hung up. Where its connection has not hung up yet, it leaves first: a version that began in between
// would lease it a slot that nobody gives back.
void Coordinator::on_reader_gone(Holder holder) {
  const auto member = std::ranges::find_if(members_, [holder](const auto& each) {
    return each->stage == Member::Stage::kWelcomed && each->hello.instance == holder;
  });
  if (member != members_.end()) evict((*member)->id, unavailable("its process is gone"));
  if (ring_) ring_->release_all(holder);
  holder_names_.erase(holder);
  try_begin();
  share();
}

void Coordinator::on_heartbeat_timer() {
  const Clock::time_point now = Clock::now();
  std::vector<WorkerId> silent;
  for (const auto& member : members_) {
    if (now - member->channel->last_heard() > absl::ToChronoNanoseconds(endpoint_.suspect_after)) {
      silent.push_back(member->id);
    } else if (member->stage != Member::Stage::kGreeting) {
      member->channel->send(Heartbeat{});
    }
  }
  for (const WorkerId id : silent)
    evict(id, unavailable("fell silent for ", absl::FormatDuration(endpoint_.suspect_after)));
  heartbeat_timer_.expires_after(absl::ToChronoNanoseconds(endpoint_.heartbeat));
  heartbeat_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) on_heartbeat_timer();
  });
}

}  // namespace bascule
