#include "sender/fleet/random_world.h"

#include <algorithm>
#include <array>

namespace bascule::test {
namespace {

constexpr std::array<const char*, 8> kOptions = {"",         "commit=each",          "slots=3",  "slots=1",
                                                 "spares=0", "spares=1&commit=each", "fresh=on", "slots=1&commit=each"};

FleetWorld::Scheme scheme_of(std::uint64_t seed) {
  return {.delivers = seed % 2 == 0,
          .publishes = seed / 2 % 3 == 0,
          .persists = seed / 6 % 3 == 0,
          .while_written = seed / 16 % 2 == 0};
}

}  // namespace

RandomWorld::RandomWorld(std::uint64_t seed) : FleetWorld(kOptions[seed % kOptions.size()], scheme_of(seed)) {
  delivers_at_once = seed / 8 % 2 == 0;
  for (const char* name : {"a", "b", "c"}) processes_.push_back({.name = name});
  for (const std::uint32_t rank : {0u, 1u, 2u})
    processes_.push_back({.name = cat("tp-", rank), .group = "tp", .rank = rank});
  processes_.push_back({.name = "rogue", .rogue = true});
  for (Process& process : processes_) process.instance = next_instance_++;
  trace_ = cat("options: ", kOptions[seed % kOptions.size()], "\n");
}

std::string RandomWorld::run(const std::vector<Step>& steps) {
  tell_and_look(event::LayoutRegistered{std::make_shared<const Layout>(layout)});
  open_slots();
  for (const Step& each : steps) {
    if (!wrong_.empty()) return wrong_;
    step(each);
  }
  finish();
  return wrong_;
}

// ---- what must always hold ----

void RandomWorld::expect(bool holds, std::string_view what) {
  if (!holds && wrong_.empty()) wrong_ = what;
}

void RandomWorld::tell_and_look(Event event) {
  ++events_;
  tell(std::move(event));
  look();
}

void RandomWorld::carry_out(Action& action) {
  const auto reaches = [&](WorkerId id, const char* what) {
    expect(!peers.at(id).closed, cat(what, " to worker ", id, ", which is gone"));
  };
  if (const auto* say = std::get_if<action::Say>(&action)) {
    for (const WorkerId id : say->to) {
      reaches(id, name_of(say->message));
      expect(peers.at(id).admitted, cat(name_of(say->message), " to worker ", id, ", which is not welcomed"));
    }
    if (const auto* decided = std::get_if<Decided>(&say->message)) {
      expect(!aborted_.contains(decided->version),
             cat("version ", decided->version, " is aborted, and to be flipped to"));
      expect_whole_groups(*say, decided->version);
    }
  } else if (const auto* admit = std::get_if<action::Admit>(&action)) {
    reaches(admit->id, "a welcome");
  } else if (const auto* offer = std::get_if<action::Offer>(&action)) {
    reaches(offer->id, "an offer");
  } else if (const auto* close = std::get_if<action::Close>(&action)) {
    reaches(close->id, "the end");
  } else if (const auto* ahead_slot = std::get_if<action::TakeAhead>(&action)) {
    expect(!written_, "two writers");
    expect_unread(ahead_slot->slot);
  } else if (const auto* granted_slot = std::get_if<action::GrantSlot>(&action);
             granted_slot && granted_slot->grant.ok()) {
    expect(!written_, "two writers");
    if (!single_copy()) expect_unread(granted_slot->grant->slot);
  } else if (const auto* may = std::get_if<action::MayWrite>(&action)) {
    const auto reads_on = [](const Process& process) {
      return !process.rogue && !process.reads.empty() && !(process.connection && process.aside);
    };
    for (const Process& process : processes_)
      expect(!reads_on(process), cat("version ", may->version, " is written under ", process.name));
    for (const auto& [instance, process] : dead_)
      expect(!reads_on(process), cat("version ", may->version, " is written under what is left of ", process.name));
  } else if (const auto* settle = std::get_if<action::Settle>(&action)) {
    if (!settle->report.ok()) aborted_.insert(settle->version);
    expect(settle->report.ok() || fleet.published() < settle->version, "an aborted version is published");
  }
  FleetWorld::carry_out(action);
}

void RandomWorld::expect_unread(SlotId slot) {
  expect(fleet.slot_allocator().holders_of(slot).empty(), cat("slot ", slot.index, " is written under a lease"));
  const auto is_read = [&](const Process& process) {
    expect(process.rogue || !process.reads.contains(slot),
           cat("slot ", slot.index, " is written under ", process.name));
  };
  for (const Process& process : processes_) is_read(process);
  for (const auto& [instance, process] : dead_) is_read(process);
  for (const action::Deliver& each : deliveries)
    expect(each.publication.slot != slot, cat("slot ", slot.index, " is written under a delivery"));
}

// Connected ranks of a group are told together, except ranks that already have the version.
void RandomWorld::expect_whole_groups(const action::Say& say, Version version) {
  const auto is_told = [&](WorkerId id) { return std::ranges::find(say.to, id) != say.to.end(); };
  bool group_is_told = false;
  for (const WorkerId id : say.to) group_is_told |= !peers.at(id).hello.group.empty();
  if (!group_is_told) return;
  for (const auto& [id, member] : fleet.roster().members()) {
    if (member.group().empty()) continue;
    if (is_told(id)) committed_[member.name()] = version;
    expect(is_told(id) || committed_[member.name()] >= version || member.serving >= version,
           cat("version ", version, " splits a group: ", member.name(), " is not told"));
  }
}

void RandomWorld::look() {
  expect(fleet.published() >= published_, "the published version fell");
  published_ = fleet.published();
  expect(!aborted_.contains(published_), "an aborted version is published");
  std::size_t addressable = 0;
  for (const auto& [id, member] : fleet.roster().members()) {
    addressable += member.addressable() ? 1 : 0;
    expect(!peers.at(id).closed, cat("worker ", id, " is gone, and a member"));
  }
  expect(addressable == fleet.roster().addressable(), "the count of addressable workers is wrong");
  for (const auto& [id, peer] : peers)
    expect(peer.closed || fleet.roster().find(id) != nullptr, cat("worker ", id, " is no member, and not closed"));
  expect(fleet.slot_allocator().all().size() <= static_cast<std::size_t>(slots) + 4, "slots without bound");
}

// ---- steps (the workers' are in random_workers.cpp) ----

void RandomWorld::step(Step step) {
  const std::uint32_t kind = step.what % 16, what = step.what / 16;
  follow_writer();
  if (step.says) {
    say_as_rogue(*std::move(step.says));
  } else if (kind < 10) {
    worker_step(processes_[step.which % processes_.size()], what);
  } else if (kind < 13) {
    writer_step(what);
  } else {
    others_step(what);
  }
}

// ---- the public thread ----

// The answers to it.
void RandomWorld::follow_writer() {
  if (writer_ == Writer::kWaits) {
    if (granted && !granted->ok()) writer_ = Writer::kIdle;
    if (const std::optional<Grant> grant = take_granted()) {
      grant_ = *grant;
      written_ = grant->slot;
      writer_ = Writer::kGranted;
    }
  }
  if (writer_ == Writer::kYielding && may_write == version_) writer_ = Writer::kWrites;
  if ((writer_ == Writer::kYielding || writer_ == Writer::kSealed) && settled.contains(version_)) {
    if (writer_ == Writer::kYielding) tell_and_look(event::Abandoned{version_, absl::AbortedError("no"), false});
    writer_ = Writer::kIdle;
    written_.reset();
  }
}

void RandomWorld::writer_step(std::uint32_t what) {
  switch (writer_) {
    case Writer::kIdle: {
      const bool some = what % 6 == 0;
      trace_ += some ? "a slot is wanted for a\n" : "a slot is wanted\n";
      writer_ = Writer::kWaits;
      ++events_;
      if (const std::optional<Grant> grant = ask(some ? std::vector<std::string>{"a"} : std::vector<std::string>{})) {
        grant_ = *grant;
        written_ = grant->slot;
        writer_ = Writer::kGranted;
      }
      return look();
    }
    case Writer::kWaits:
      if (what % 4 != 0) return;
      trace_ += "the slot is given up\n";
      writer_ = Writer::kIdle;
      return tell_and_look(event::TakeGivenUp{});
    case Writer::kGranted:
      if (what % 16 == 0) {
        trace_ += "the slot is given back\n";
        writer_ = Writer::kIdle;
        written_.reset();
        return tell_and_look(event::GivenBack{grant_});
      }
      if (what % 16 == 1 && !single_copy()) {
        trace_ += "the slot is replaced\n";
        written_.reset();
        const Version version = grant_.version;
        tell_and_look(event::SlotReplaced{grant_});
        grant_ = **std::exchange(granted, std::nullopt);
        grant_.version = version;
        written_ = grant_.slot;
        return;
      }
      failing_offers = what / 16 % 32 == 0 ? 1 : 0;
      trace_ += cat("version ", grant_.version, " is announced\n");
      writer_ = single_copy() ? Writer::kYielding : Writer::kWrites;
      version_ = grant_.version;
      ++events_;
      announce(grant_);
      failing_offers = 0;
      return look();
    case Writer::kYielding:
    case Writer::kSealed: return;  // it waits
    case Writer::kWrites: {
      if (what % 3 == 0) return;  // it takes its time
      writer_ = Writer::kSealed;
      const bool lapsed = single_copy() && !end_loan(version_);
      written_.reset();
      if (lapsed || what % 8 == 1) {
        trace_ += cat("version ", version_, " is abandoned\n");
        return tell_and_look(event::Abandoned{version_, absl::AbortedError("dropped"), single_copy() && what % 16 < 8});
      }
      trace_ += cat("version ", version_, " is sealed\n");
      return tell_and_look(event::SlotSealed{version_, std::nullopt, Limit::timeout(endpoint, now)});
    }
  }
}

// ---- the scheme, time, lease pipes ----

void RandomWorld::others_step(std::uint32_t what) {
  const absl::Status status = what / 8 % 6 == 0 ? absl::UnavailableError("it failed") : absl::OkStatus();
  ++events_;
  switch (what % 8) {
    case 0:
    case 1:
      if (!deliveries.empty()) finish_delivery(status);
      break;
    case 2:
      if (!publishes.empty()) finish_publish(status);
      break;
    case 3:
      if (!persists.empty()) finish_persist(status);
      break;
    case 4:
      if (what / 8 % 4 != 0) break;
      trace_ += "time passes\n";
      pass(absl::Seconds(what / 32 % 3 == 0 ? 40 : 4));
      break;
    case 5:
      if (dead_.empty()) break;
      trace_ += "a lease pipe hangs up\n";
      {
        const Holder gone = dead_.begin()->first;
        dead_.erase(gone);
        tell(event::HolderGone{gone});
      }
      break;
    default: break;
  }
  look();
}

// ---- every wait ends ----

void RandomWorld::finish() {
  trace_ += "no worker answers any longer\n";
  for (int i = 0; i < 12 && wrong_.empty(); ++i) {
    follow_writer();
    if (writer_ == Writer::kWaits) writer_ = Writer::kIdle, tell_and_look(event::TakeGivenUp{});
    if (writer_ == Writer::kGranted || writer_ == Writer::kWrites) writer_step(16 * 33 + 2);
    while (!deliveries.empty()) finish_delivery();
    while (!publishes.empty()) finish_publish();
    while (!persists.empty()) finish_persist();
    pass(absl::Minutes(2));
    look();
  }
  if (!wrong_.empty()) return;
  expect(fleet.versions().tickets().empty(), "a version is on its way for ever");
  expect(writer_ == Writer::kIdle || writer_ == Writer::kSealed, "the public thread waits for ever");
  follow_writer();
  for (Process& process : processes_) die(process, false);
  while (!dead_.empty()) others_step(5);
  expect(fleet.roster().members().empty(), "a member is left");
  for (const auto& [id, peer] : peers) expect(peer.closed.has_value(), cat("worker ", id, " was never closed"));
  expect(fleet.slot_allocator().left_behind().empty(), "a holder is left");
  if (writer_ != Writer::kIdle) return;
  expect(ask().has_value(), "there is no reader, and no slot");
}

}  // namespace bascule::test
