// Who is at the endpoint: greetings, welcomes, refusals, heartbeats, evictions. I/O thread.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "sender/coordinator.h"
#include "transport/text.h"

namespace bascule {

void Coordinator::arrive(const std::shared_ptr<Channel>& channel, Hello hello) {
  auto member = std::make_unique<Member>();
  const WorkerId id = member->id = next_worker_++;
  member->since = Clock::now();
  member->channel = channel;
  members_.push_back(std::move(member));
  channel->start(
      [this, id](Message message, const std::vector<UniqueFd>& descriptors) {
        if (!descriptors.empty()) return evict(id, invalid_argument(name_of(message), " came with descriptors"));
        on_message(id, std::move(message));
      },
      [this, id](const absl::Status& why) { evict(id, why); });
  greet(id, std::move(hello));
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
  const auto namesake = std::ranges::find_if(
      members_, [&](const auto& member) { return member->id != id && member->name() == hello.worker; });
  if (namesake != members_.end() && (*namesake)->hello.instance == hello.instance)
    evict((*namesake)->id, unavailable("worker ", hello.worker, " came back on a new connection"));
  if (absl::Status free = check_name(hello); !free.ok()) return refuse(id, free);
  Member* member = find(id);
  if (member == nullptr) return;
  absl::Status possible = continue_above(hello.serving);
  for (const HeldSlot& held : hello.held)
    if (possible.ok()) possible = continue_above(held.version);
  if (!possible.ok()) return refuse(id, annotate(possible, cat("worker ", hello.worker)));
  member->serving = hello.epoch == epoch_ ? hello.serving : 0;  // of an older sender: to be caught up
  member->hello = std::move(hello);
  member->stage = Member::Stage::kParked;
  consider(*member);
  try_take();  // leases that it no longer claims may have freed a slot
  share();
}

// One name, one worker; one rank of a group, one worker; a group's name is no worker's.
absl::Status Coordinator::check_name(const Hello& hello) const {
  for (const auto& other : members_) {
    if (other->stage == Member::Stage::kGreeting) continue;
    const std::string who = cat(" (worker ", other->name(), ", pid ", other->hello.pid, ")");
    if (other->name() == hello.worker)
      return absl::AlreadyExistsError(cat("another worker named ", hello.worker, " (pid ", other->hello.pid,
                                          ") is connected; give each worker its own name"));
    if (other->group() == hello.worker || (!hello.group.empty() && other->name() == hello.group))
      return absl::AlreadyExistsError(
          cat("worker ", hello.worker, ": a group and a worker have one name", who, "; rename one of them"));
    if (hello.group.empty() || other->group() != hello.group) continue;
    if (other->hello.ranks != hello.ranks)
      return absl::AlreadyExistsError(cat("group ", hello.group, " has ", other->hello.ranks, " ranks", who,
                                          ", worker ", hello.worker, " says ", hello.ranks));
    if (other->hello.rank == hello.rank)
      return absl::AlreadyExistsError(
          cat("rank ", hello.rank, " of group ", hello.group, " is there already", who, "; give each rank its own"));
  }
  return absl::OkStatus();
}

// The ranks of a member's group that have greeted, itself included; itself alone where it has none.
std::vector<Member*> Coordinator::ranks_of(const Member& member) {
  std::vector<Member*> ranks;
  for (const auto& other : members_)
    if (other.get() == &member || (!member.group().empty() && other->group() == member.group()))
      ranks.push_back(other.get());
  return ranks;
}

void Coordinator::consider(Member& member) {
  if (!layout_) return;
  if (member.hello.expected)
    if (absl::Status fits = layout_->check_expected(*member.hello.expected, member.hello.casts); !fits.ok())
      return refuse(member.id, annotate(fits, cat("worker ", member.name())));
  if (endpoint_.slots == 1 && member.hello.ranks > 1 && !member.hello.casts)
    return refuse(member.id, failed_precondition("worker ", member.name(), ": with slots=1 who reads in place steps ",
                                                 "aside at a token boundary of its own, which a rank of a group has ",
                                                 "not; use slots=2, or copy (register_model of the receiver)"));
  const std::vector<Member*> ranks = ranks_of(member);
  if (ranks.size() < member.hello.ranks) return;  // parked until the whole group is there
  std::vector<WorkerId> ids;
  for (Member* rank : ranks) {
    rank->stage = Member::Stage::kAdmitted;
    ids.push_back(rank->id);
  }
  if (!ring_) return;
  for (const WorkerId id : ids)
    if (Member* rank = find(id); rank != nullptr && rank->stage == Member::Stage::kAdmitted) welcome(*rank);
  for (const WorkerId id : ids)
    if (Member* rank = find(id)) start_catch_up(*rank);
}

void Coordinator::welcome(Member& member) {
  const WorkerId id = member.id;
  std::vector<OfferedSlot> offered;
  for (const SlotId slot : ring_->slots())
    if (const auto known = slots_.find(slot.index); known != slots_.end()) offered.push_back(known->second);
  absl::StatusOr<Offer> offer = transport_.admit(id, member.hello, offered);
  if (!offer.ok()) return refuse(id, annotate(offer.status(), cat("worker ", member.name())));
  std::vector<int> descriptors = offer->descriptors;
  absl::StatusOr<UniqueFd> lease;
  if (endpoint_.over_tcp()) {
    if (!descriptors.empty())
      return refuse(id, absl::InternalError(cat("scheme ", endpoint_.scheme, " offers descriptors over TCP")));
  } else {
    lease = pipes_.open(member.hello.instance);
    if (!lease.ok()) return refuse(id, lease.status());
    descriptors.push_back(control_page_);
    descriptors.push_back(lease->get());
  }

  holder_names_[member.hello.instance] = member.name();

  // Of the leases that it had, those that it still claims live on.
  std::vector<SlotId> held;
  for (const HeldSlot& slot : member.hello.held) held.push_back(slot.slot);
  ring_->keep_only(member.hello.instance, held);

  Welcome message{
      .id = id, .epoch = epoch_, .layout = *layout_, .digest = endpoint_.digest, .offer = offer->bytes, .slots = {}};
  for (const std::vector<std::string>& wish : member.hello.fused)
    if (layout_->join(wish).ok() && !layout_->joined_at(wish))
      warnings_.push_back(cat("worker ", member.name(), " wished for ", absl::StrJoin(wish, ", "),
                              " side by side after the layout was fixed, or against an earlier wish: it copies them"));
  for (const OfferedSlot& slot : offered) {
    message.slots.push_back(slot.id.index);
    member.knows.insert(slot.id.index);
  }
  say(member, message, descriptors);
  member.stage = Member::Stage::kWelcomed;
  log(cat("worker ", member.name(), " joined (pid ", member.hello.pid, ", serving version ", member.serving, ")"));
}

void Coordinator::refuse(WorkerId id, const absl::Status& why) {
  Member* member = find(id);
  if (member == nullptr) return;
  last_refusal_ = std::string(message_of(why));
  // Another worker of the same name may go, memory come free; other tensors will not become the same.
  const bool may_pass = absl::IsAlreadyExists(why) || absl::IsUnavailable(why) || absl::IsResourceExhausted(why);
  forget(id, why, !may_pass);
}

void Coordinator::evict(WorkerId id, absl::Status why) {
  Member* member = find(id);
  if (member == nullptr) return;
  why = member->stage == Member::Stage::kGreeting ? std::move(why) : annotate(why, cat("worker ", member->name()));
  forget(id, why);
}

void Coordinator::evict_poisoned(WorkerId id, std::string_view why) {
  poisoned_[find(id)->name()] = why;
  evict(id, absl::AbortedError(cat("poisoned: ", why)));
}

// Whoever hears that he is refused finds that the public thread counts on him no more.
void Coordinator::forget(WorkerId id, const absl::Status& why, bool final_refusal) {
  const auto found = std::ranges::find_if(members_, [id](const auto& member) { return member->id == id; });
  const std::unique_ptr<Member> member = std::move(*found);
  members_.erase(found);
  share();
  say(*member, Refused{.why = std::string(message_of(why)), .final = final_refusal});
  member->channel->close();
  if (member->stage == Member::Stage::kWelcomed) transport_.dismiss(id);
  log(cat("gave up ", member->name().empty() ? "a connection" : member->name(), ": ", message_of(why)));
  // Its leases stay until the pipe hangs up: it may still be reading. But not that of a version that neither it nor, in
  // a group, anybody was told to flip to: it drops that one whatever it had of it.
  const auto drop_lease = [&](const Round& round) {
    const std::vector<WorkerId> in_it = round.remaining();
    const bool told = member->group().empty() ? round.was_told(id) : round.phase() == Round::Phase::kCommitting;
    const SlotId slot = round.publication().slot;
    const bool held_before = std::ranges::find(member->hello.held, slot, &HeldSlot::slot) != member->hello.held.end();
    if (std::ranges::find(in_it, id) != in_it.end() && !told && !held_before && round.under_way())
      ring_->release(slot, member->hello.instance);
  };
  if (member->catch_up && member->serving < member->catch_up->round.publication().version)
    drop_lease(member->catch_up->round);
  if (round_ && endpoint_.slots > 1) drop_lease(*round_);
  if (ring_ && member->releasing)
    ring_->release(*member->releasing, member->hello.instance);  // of one that was aborted
  // Over TCP there is no pipe, and no memory of ours that it could read: its connection is all that we know of it.
  if (endpoint_.over_tcp() && member->stage == Member::Stage::kWelcomed) end_leases(member->hello.instance);
  // A group is evicted whole, and before its round goes on, or those who are left would be told to flip; ranks that
  // only wait for the others wait on.
  if (!member->group().empty() && member->stage == Member::Stage::kWelcomed) {
    std::vector<WorkerId> ranks;
    for (const auto& other : members_)
      if (other->group() == member->group() && other->stage == Member::Stage::kWelcomed) ranks.push_back(other->id);
    for (const WorkerId rank : ranks)
      evict(rank, unavailable("its group lost rank ", member->hello.rank, ": ", message_of(why)));
  } else if (member->stage == Member::Stage::kAdmitted) {
    for (const auto& other : members_)
      if (!member->group().empty() && other->group() == member->group()) other->stage = Member::Stage::kParked;
  }
  if (round_ && round_->under_way()) {
    round_->lost(id, why);
    advance(*round_, nullptr);
  }
  try_take();  // its lease may have been the last on a slot
  share();
}

void Coordinator::on_message(WorkerId id, Message message) {
  Member* member = find(id);
  if (member == nullptr || std::holds_alternative<Heartbeat>(message)) return;
  if (trace_) trace_(cat("from ", member->name(), ": ", name_of(message)));
  if (auto* hello = std::get_if<Hello>(&message)) {
    if (member->stage != Member::Stage::kGreeting) return evict(id, invalid_argument("greeted twice"));
    return greet(id, std::move(*hello));
  }
  if (const auto* bye = std::get_if<Bye>(&message)) {
    if (!bye->why.empty()) last_refusal_ = cat("worker ", member->name(), ": ", bye->why);
    return evict(id, unavailable("said goodbye", bye->why.empty() ? "" : ": ", bye->why));
  }
  if (member->stage != Member::Stage::kWelcomed) return while_it_waits(*member, message);

  // A worker is in one round at a time: its own catch-up, or the one that the public thread began.
  const std::shared_ptr<CatchUp> catch_up = member->catch_up;
  Round* round = catch_up ? &catch_up->round : round_.get();
  const auto concerns = [&](Version version) { return round != nullptr && round->publication().version == version; };
  if (const auto* ready = std::get_if<Ready>(&message)) {
    if (std::exchange(member->follows, ready->follows) != ready->follows) share();
    if (concerns(ready->version)) round->ready(id);
  } else if (const auto* prepared = std::get_if<Prepared>(&message)) {
    if (concerns(prepared->version)) round->prepared(id);
    member->failures = 0;
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    if (++member->failures >= 2)
      return evict_poisoned(id, cat("failed two versions running, the last because: ", failed->why));
    if (concerns(failed->version)) round->failed(id, failed->why);
  } else if (const auto* ack = std::get_if<Ack>(&message)) {
    member->serving = std::max(member->serving, ack->version);
    if (member->serving >= published_version_) member->owed = false;
    poisoned_.erase(member->name());
    if (concerns(ack->version)) round->acked(id, ack->seconds, ack->stall_seconds);
  } else if (const auto* released = std::get_if<Released>(&message)) {
    std::erase_if(member->hello.held, [released](const HeldSlot& held) { return held.slot == released->slot; });
    // Of an older version than the slot was leased for since: that lease goes on.
    const auto told = member->told.find(released->slot.index);
    if (ring_ && (told == member->told.end() || told->second <= released->version))
      ring_->release(released->slot, member->hello.instance);
    if (member->releasing == released->slot) member->releasing.reset();
    start_catch_up(*member);  // again, where the last one failed
    try_take();
    return share();
  } else if (const auto* poisoned = std::get_if<Poisoned>(&message)) {
    return evict_poisoned(id, poisoned->why);
  } else {
    return evict(id, invalid_argument(name_of(message), " is not a worker's message"));
  }
  if (round != nullptr) advance(*round, catch_up.get());
}

// A worker that greeted and waits may flip to a version of before: what it says of that mends its greeting.
void Coordinator::while_it_waits(Member& member, const Message& message) {
  if (const auto* ack = std::get_if<Ack>(&message)) {
    if (const absl::Status possible = continue_above(ack->version); !possible.ok()) return evict(member.id, possible);
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
  end_leases(holder);
  try_take();
  share();
}

void Coordinator::end_leases(Holder holder) {
  if (ring_) ring_->release_all(holder);
  holder_names_.erase(holder);
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
