#include "receiver/session_world.h"  // first: see there

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

constexpr std::uint32_t kMostSlots = 3;

SenderMemory memory_of(Epoch epoch, std::uint32_t slots) {
  SenderMemory memory = SenderMemory::make({{"w", DType::kF32, {4}}}, {}, slots);
  memory.page = ControlPage::make(epoch).value();
  return memory;
}

}  // namespace

SessionWorld::SessionWorld(std::uint64_t seed)
    : random_(seed),
      slots_(static_cast<std::uint32_t>(1 + below(kMostSlots))),
      follows_(one_in(5)),
      uses_descriptor_(one_in(2)),
      // Ranks of a group may not read a single copy in place.
      apply_(one_in(4) || (follows_ && singly()) ? std::optional(one_in(2) ? Apply::kBackground : Apply::kCommit)
                                                 : std::nullopt),
      sender_(folder_.path()) {
  memory_.push_back(memory_of(epoch_, slots_));
  lease_ = UniqueFd(::dup(memory_.back().page.descriptor()));  // any descriptor: it is only kept
  note(cat("slots=", slots_, follows_ ? ", a follower" : "", uses_descriptor_ ? ", with pending_fd" : "",
           !apply_                         ? ", reads in place"
           : *apply_ == Apply::kBackground ? ", copies ahead"
                                           : ", copies at flips"));
  Receiver receiver = make_receiver();
  const int descriptor = uses_descriptor_ ? receiver.pending_fd().value() : -1;
  receiver.join();
  engine_.emplace(std::move(receiver), !apply_, descriptor);
}

// Its limits are long, so that whatever ends a wait, it is not one of them; except a follower's for rank 0's version.
Receiver SessionWorld::make_receiver() {
  absl::StatusOr<Receiver> made =
      Receiver::connect({.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=1h&timeout=1h",
                                         "&flip_timeout=", follows_ ? "50ms" : "1h"),
                         .worker = "a",
                         .group = follows_ ? "g" : "",
                         .rank = follows_ ? 1U : 0U,
                         .ranks = follows_ ? 2U : 1U,
                         .threads = 1,
                         .trace = [this](std::string_view line) {
                           if (line.starts_with("from sender")) ++read_;
                         }});
  if (!made.ok()) throw std::runtime_error(made.status().ToString());
  if (apply_) {
    auto* const data = reinterpret_cast<std::byte*>(target_.data());
    const absl::Status registered =
        made->register_model({{.name = "w", .dtype = DType::kF32, .shape = {4}, .data = data}}, {.apply = apply_});
    if (!registered.ok()) throw std::runtime_error(registered.ToString());
  }
  return *std::move(made);
}

SessionWorld::~SessionWorld() = default;

void SessionWorld::note(std::string_view step) {
  const double passed = 1e3 * seconds_between(began_, Clock::now());
  trace_.append(cat("  ", static_cast<std::int64_t>(passed), " ms  ", step, "\n"));
}

void SessionWorld::fail(std::string_view what) {
  if (wrong_.empty()) wrong_ = what;
}

std::string SessionWorld::run(int steps) {
  for (int i = 0; i < steps && wrong_.empty(); ++i) {
    step();
    hear();
    if (engine_ && wrong_.empty()) fail(engine_->wrong());
  }
  if (wrong_.empty()) settle();
  if (engine_ && wrong_.empty()) fail(engine_->wrong());
  return wrong_;
}

void SessionWorld::step() {
  const std::uint64_t kind = below(20);
  if (kind < 8) return advance();
  if (kind < 13) return engine_acts();
  if (kind < 15) return wait_until_read();
  misbehave();
}

// ---- the sender ----

void SessionWorld::advance() {
  if (!connected_) return connect();
  if (!welcomed_) return welcome();
  if (!incoming_) {
    if (const std::optional<std::uint32_t> slot = free_slot()) prepare(*slot);
    return;
  }
  if (!incoming_->ready || (incoming_->sealed && !incoming_->prepared)) return;  // the worker's turn
  if (!incoming_->sealed) return one_in(3) && !incoming_->written ? write_half() : seal();
  decide();
}

void SessionWorld::misbehave() {
  if (!connected_) return connect();
  if (incoming_ && incoming_->ahead) return lose_connection("hang up after the decision");  // nothing else may follow
  switch (below(10)) {
    case 0: return lose_connection("hang up");
    case 1: return welcome();
    case 2:
    case 3: return prepare(static_cast<std::uint32_t>(below(slots_ + one_in(8))));
    case 4: return prepare_again();
    case 5:
    case 6: return abort();
    case 7:
      if (!one_in(3)) return;
      note("say bye");
      sender_.say(Bye{}), ++said_;
      return lose_connection("and hang up");
    case 8:
      if (!one_in(3)) return;
      note("refuse");
      sender_.say(Refused{.why = "a test", .final = false}), ++said_;
      return lose_connection("and hang up");
    default:
      if (!one_in(6)) return sender_.say(Heartbeat{});
      note("decide what is not prepared");
      sender_.say(Decided{.version = last_version_ + 1}), ++said_;
      return lose_connection("and hang up");
  }
}

void SessionWorld::connect() {
  if (one_in(6)) be_another_sender();
  note("be greeted");
  const Hello hello = sender_.greeted(/*hangs_up=*/false);
  if (hello.worker != "a") return fail("no greeting came");
  connected_ = true;
  leases_.clear();
  unreleased_.clear();
  for (const HeldSlot& held : hello.held)
    if (held.slot.epoch == epoch_ && !leases_.insert({held.slot.index, 0}).second)
      fail("the greeting claims a slot twice");
}

// With its own memory; versions only grow.
void SessionWorld::be_another_sender() {
  note("be another sender");
  ++epoch_;
  memory_.push_back(memory_of(epoch_, slots_));
  holds_.clear();
}

void SessionWorld::welcome() {
  note("welcome");
  Welcome welcome = memory_.back().welcome();
  welcome.epoch = epoch_;
  std::vector<int> descriptors;
  for (const SlotMemory& slot : memory_.back().slots) descriptors.push_back(slot.descriptor.get());
  descriptors.push_back(memory_.back().page.descriptor());
  descriptors.push_back(lease_.get());
  sender_.say(welcome, descriptors), ++said_;
  welcomed_ = true;
}

// A single copy is written once the engine has yielded, any other slot once it is free.
std::optional<std::uint32_t> SessionWorld::free_slot() {
  if (singly()) return 0;
  for (std::uint32_t slot = 0; slot < slots_; ++slot)
    if (!leases_.contains(slot)) return slot;
  return std::nullopt;
}

void SessionWorld::prepare(std::uint32_t slot) {
  const bool may_write = welcomed_ && slot < slots_ && (singly() || !leases_.contains(slot));
  note(cat("prepare version ", last_version_ + 1, " in slot ", slot, may_write ? "" : ", which it must not write"));
  begin({.version = ++last_version_, .slot = slot, .may_write = may_write});
}

// The version that was decided last, as for a worker that came back; or the one that is not decided yet.
void SessionWorld::prepare_again() {
  Incoming next;
  const auto whole = std::ranges::find(holds_, decided_, [](const auto& held) { return held.second; });
  if (incoming_ && !incoming_->again && !incoming_->sealed && one_in(2)) {
    const bool may_write = incoming_->may_write && !incoming_->written;
    next = {.version = incoming_->version, .slot = incoming_->slot, .may_write = may_write};
  } else if (whole != holds_.end()) {
    next = {.version = whole->second, .slot = whole->first, .again = true};
  } else {
    return;
  }
  note(cat("prepare version ", next.version, " again in slot ", next.slot));
  begin(next);
}

// The version before it, if any, is given up without a message.
void SessionWorld::begin(Incoming incoming) {
  incoming_ = incoming;
  leases_[incoming.slot] = ++last_lease_;
  unreleased_[incoming.slot].insert(last_lease_);
  std::vector<std::uint32_t> all(slots_);
  std::iota(all.begin(), all.end(), 0U);
  sender_.say(Prepare{.version = incoming.version,
                      .slot = {epoch_, incoming.slot},
                      .lease = last_lease_,
                      .bytes = memory_.back().layout.bytes(),
                      .offer = std::nullopt,
                      .slots = std::move(all)});
  ++said_;
}

void SessionWorld::stamp(std::uint32_t slot, Version version, std::size_t tensors) {
  auto* const floats = reinterpret_cast<float*>(memory_.back().slots[slot].mapping.writable().data());
  for (std::size_t i = 0; i < tensors; ++i)
    std::atomic_ref<float>(floats[i]).store(static_cast<float>(version), std::memory_order_relaxed);
}

void SessionWorld::write_half() {
  if (!incoming_->may_write) return;
  note("write half of it");
  incoming_->written = true;
  holds_.erase(incoming_->slot);
  const std::optional<SlotId> reads = engine_->reads();
  if (reads == SlotId{epoch_, incoming_->slot}) fail("the worker is ready, and its engine still reads the slot");
  stamp(incoming_->slot, incoming_->version, 2);
}

void SessionWorld::seal() {
  if (!incoming_->may_write && !incoming_->again) return;
  note("seal it");
  if (!incoming_->again) {
    write_half();
    stamp(incoming_->slot, incoming_->version, 4);
    memory_.back().page.seal(incoming_->slot, incoming_->version, memory_.back().layout.bytes(), std::nullopt);
    holds_[incoming_->slot] = incoming_->version;
  }
  incoming_->sealed = true;
  Sealed sealed{.version = incoming_->version, .digest = std::nullopt};
  if (!follows_ && !singly() && one_in(3)) {
    note("and decide it, if it can be prepared");
    incoming_->ahead = true;
    decided_ = incoming_->version;
    sealed.decided = true;
  }
  sender_.say(sealed), ++said_;
}

void SessionWorld::decide() {
  note(cat("decide version ", incoming_->version));
  decided_ = incoming_->version;
  if (!incoming_->ahead) sender_.say(Decided{.version = incoming_->version}), ++said_;
  incoming_.reset();
  if (one_in(4)) expect_idle("the version was decided");
}

void SessionWorld::abort() {
  if (!incoming_) return;
  const bool torn = incoming_->written && singly();
  note(cat("abort version ", incoming_->version, torn ? ", torn" : ""));
  sender_.say(Abort{.version = incoming_->version, .torn = torn}), ++said_;
  incoming_.reset();
  if (one_in(2)) expect_idle("what it waited for was aborted");
}

void SessionWorld::lose_connection(std::string_view how) {
  note(how);
  if (one_in(2)) wait_until_read();
  sender_.hang_up();
  disconnected();
  if (!one_in(4)) expect_idle("there is no connection");
}

void SessionWorld::disconnected() {
  connected_ = welcomed_ = false;
  incoming_.reset();
  said_ = 0;
  read_ = 0;
}

// ---- what the worker says ----

void SessionWorld::hear() {
  if (!connected_) return;
  while (const std::optional<Message> message = sender_.next_if_any()) hear_next(*message);
  if (!connected_ || !sender_.hung_up()) return;
  note("the worker hung up");
  sender_.hang_up();
  disconnected();
  if (one_in(2)) expect_idle("the worker hung up");
}

void SessionWorld::hear_next(const Message& message) {
  if (std::holds_alternative<Heartbeat>(message)) return;
  note(cat("                                     hear ", name_of(message)));
  if (const auto* ready = std::get_if<Ready>(&message); ready && incoming_ && incoming_->version == ready->version)
    incoming_->ready = true;
  if (const auto* prepared = std::get_if<Prepared>(&message);
      prepared && incoming_ && incoming_->version == prepared->version && incoming_->sealed)
    incoming_->prepared = true;
  if (const auto* released = std::get_if<Released>(&message)) on_released(*released);
}

void SessionWorld::on_released(const Released& released) {
  const std::uint32_t slot = released.slot.index;
  if (released.slot.epoch != epoch_) return;  // of an earlier sender
  const auto lease = leases_.find(slot);
  if (released.lease != 0 && !unreleased_[slot].contains(released.lease))
    return fail(cat("released lease ", released.lease, " on slot ", slot, ", which was not begun, or ended twice"));
  std::erase_if(unreleased_[slot], [&](LeaseNumber number) { return number <= released.lease; });
  if (lease == leases_.end()) return fail(cat("released slot ", slot, " twice"));
  if (lease->second != released.lease) return;  // it crossed a later prepare
  leases_.erase(lease);
  const std::optional<SlotId> reads = engine_->reads();
  if (reads == released.slot) fail(cat("released slot ", slot, ", which its engine reads"));
}

// ---- the engine ----

void SessionWorld::engine_acts() {
  if (!engine_->idle()) return;
  using Call = WorldEngine::Call;
  Call call = one_in(3) ? Call::kTake : Call::kCommit;
  if (engine_->loading() && !one_in(4)) call = one_in(4) ? Call::kFinishWithError : Call::kFinish;
  static constexpr std::array kNames = {"commit", "take", "finish", "finish with an error"};
  note(cat("the engine calls ", kNames[static_cast<std::size_t>(call)]));
  engine_->begin(call, follows_ && one_in(8) ? decided_ + 1 : decided_);
}

void SessionWorld::expect_idle(std::string_view why) {
  if (!engine_->idle_by(Deadline(patience())))
    fail(cat("the engine waits for ", absl::FormatDuration(patience()), ", though ", why));
}

void SessionWorld::wait_until_read() {
  if (!connected_) return;
  for (const Deadline deadline(patience()); read_ < said_ && connected_; hear()) {
    if (deadline.passed()) return fail(cat("the worker read ", read_.load(), " of ", said_, " messages"));
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// What rank 0 serves. A follower keeps what it has prepared until rank 0 serves that or a later version.
Version SessionWorld::chosen() { return follows_ && connected_ && !free_slot() ? last_version_ : decided_; }

// One more version goes all its way; then every lease but that on the served slot has ended.
void SessionWorld::settle() {
  note("settle");
  if (connected_) lose_connection("hang up");
  expect_idle("there is no connection");
  const std::size_t leases_left = apply_ ? 0 : 1;
  // A version that the sender before this one brought does not count: its slot is none of this sender's leases.
  const auto is_served = [this] {
    if (decided_ == 0 || decided_ != last_version_ || !engine_->idle() || engine_->version() != decided_) return false;
    const std::optional<SlotId> reads = engine_->reads();
    return apply_ || (reads && reads->epoch == epoch_);
  };
  const auto is_settled = [&] { return connected_ && is_served() && leases_.size() == leases_left; };
  Deadline next_try(absl::ZeroDuration());  // for the engine to take the last version
  for (const Deadline deadline(patience()); wrong_.empty() && !is_settled() && !deadline.passed();) {
    hear();
    if (incoming_) next_try = Deadline(absl::Milliseconds(50));
    if (!connected_ || !welcomed_ || incoming_ || (!is_served() && next_try.passed())) advance();
    using Call = WorldEngine::Call;
    if (engine_->idle()) engine_->begin(engine_->loading() ? Call::kFinish : Call::kCommit, chosen());
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  expect_idle("nothing is prepared");
  if (!wrong_.empty()) return;
  if (!is_served()) {
    note(cat("decided ", decided_, ", ", leases_.size(), " leases, chosen ", chosen(), ", said ", said_, ", read ",
             read_.load(), engine_->loading() ? ", loading" : ""));
    return fail(cat("version ", last_version_, " is not served; the engine has ", engine_->version()));
  }
  if (leases_.size() != leases_left) return fail(cat(leases_.size(), " leases are left"));
  if (!apply_ && engine_->reads() != SlotId{epoch_, leases_.begin()->first})
    return fail("the lease that is left is not the served slot's");
}

}  // namespace bascule::test
