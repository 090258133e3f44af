// The sender's end of auto over a scheme that records its calls, and a line whose posted work a test runs.
#pragma once

#include <bascule/schemes/auto/sender.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_join.h"
#include "schemes/auto/auto_fixture.h"
#include <bascule/transport/status.h>

namespace bascule::inline v0 {

// The scheme of the slots, or the one for other hosts. The test ends its deliveries.
class Inner final : public SenderTransport, public Delivery {
 public:
  explicit Inner(std::vector<std::string>& told, std::string name = "") : told_(told), name_(std::move(name)) {}

  absl::StatusOr<SlotMemory> make_slot(SlotId, const Layout&, int) override { return make_memfd("slot", kBytes); }
  void unmake_slot(SlotId slot) override { tell(cat("unmake ", slot.index)); }
  absl::StatusOr<Offer> offer(WorkerId, ConnectionKind, std::span<const OfferedSlot>) override {
    BASCULE_TRY(offers);
    return Offer{.bytes = cat("of ", name_, "the inner scheme"), .descriptors = {}};
  }
  void remove(WorkerId worker) override { tell(cat("remove ", worker)); }
  Delivery* delivery() override { return this; }
  std::string path(WorkerId) const override { return "its own"; }

  void open(WorkerLine&) override { tell("open"); }
  void deliver(DeliveryOrder order, Done done) override {
    tell(cat("deliver to ", absl::StrJoin(order.workers, " ")));
    if (ends_at_once) return done(absl::OkStatus());
    numbers.push_back(order.number);
    done_[order.number] = std::move(done);
  }
  void stop(std::uint64_t number) override { tell(cat("stop ", number == numbers.back() ? "it" : "another")); }
  void heard(WorkerId worker, std::string bytes, std::vector<UniqueFd>) override {
    tell(cat("receive ", worker, " ", bytes));
  }
  void close() override { tell("close"); }

  void end(std::uint64_t number, const absl::Status& status = absl::OkStatus()) {
    const auto done = done_.extract(number);
    ASSERT_FALSE(done.empty());
    done.mapped()(status);
  }

  absl::Status offers;
  bool ends_at_once = false;
  std::vector<std::uint64_t> numbers;

 private:
  void tell(const std::string& what) { told_.push_back(name_ + what); }

  std::vector<std::string>& told_;
  const std::string name_;
  std::map<std::uint64_t, Done> done_;
};

class PostedLine final : public WorkerLine {
 public:
  struct Said {
    std::string bytes;
    std::vector<ProcessFd> descriptors;
  };
  void deliver(WorkerId, Version, std::string) override { ADD_FAILURE() << "that is the inner scheme's"; }
  void say(WorkerId worker, std::string bytes, std::vector<ProcessFd> descriptors) override {
    const std::lock_guard lock(mutex_);
    said_[worker].push_back({.bytes = std::move(bytes), .descriptors = std::move(descriptors)});
  }
  void give_up(WorkerId worker, absl::Status why) override {
    const std::lock_guard lock(mutex_);
    given_up_[worker] = std::move(why);
  }
  void log(std::string) override {}
  void post(std::function<void()> work) override {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(work));
  }

  // The I/O thread: runs posted work until the condition holds.
  bool run_until(const std::function<bool()>& so) {
    for (const Deadline deadline(test::patience()); !so(); std::this_thread::yield()) {
      if (deadline.passed()) return false;
      run();
    }
    return true;
  }
  void run() {
    std::vector<std::function<void()>> works;
    {
      const std::lock_guard lock(mutex_);
      works.swap(posted_);
    }
    for (const auto& work : works) work();
  }
  std::vector<std::string> messages_to(WorkerId worker) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> messages;
    for (const Said& said : said_[worker]) messages.push_back(said.bytes);
    return messages;
  }
  int shown_to(WorkerId worker, std::size_t place) {
    const std::lock_guard lock(mutex_);
    return said_[worker].at(place).descriptors.at(0).get();
  }
  std::size_t said() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [worker, said] : said_) count += said.size();
    return count;
  }
  absl::Status given_up(WorkerId worker) {
    const std::lock_guard lock(mutex_);
    const auto found = given_up_.find(worker);
    return found == given_up_.end() ? absl::OkStatus() : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<WorkerId, std::vector<Said>> said_;
  std::map<WorkerId, absl::Status> given_up_;
  std::vector<std::function<void()>> posted_;
};

class AutoSenderTest : public testing::Test {
 protected:
  AutoSenderTest() {
    sender.open(line);
    slot.write(5);
    told.clear();
  }
  ~AutoSenderTest() override { sender.close(); }

  absl::Status join(WorkerId worker) {
    const OfferedSlot slots[] = {slot.offered(), other.offered()};
    return sender.offer(worker, ConnectionKind::kUnixSocket, slots).status();
  }
  void join_host(WorkerId worker) {
    ASSERT_THAT(join(worker), test::IsOk());
    sender.heard(worker, kWantsMirrors, {});
  }
  void join_device(WorkerId worker) {
    ASSERT_THAT(join(worker), test::IsOk());
    sender.heard(worker, "on a GPU", {});
  }
  void join_over_tcp(WorkerId worker) {
    const OfferedSlot slots[] = {slot.offered(), other.offered()};
    const absl::StatusOr<Offer> offer = sender.offer(worker, ConnectionKind::kTcp, slots);
    ASSERT_THAT(offer, test::IsOk());
    EXPECT_EQ(offer->bytes, "of others' the inner scheme");
  }
  void deliver(std::uint64_t number, std::vector<WorkerId> workers) {
    DeliveryOrder order{.number = number, .publication = {}, .workers = std::move(workers)};
    order.publication = {.version = number, .slot = slot.id, .bytes = kBytes, .digest = std::nullopt};
    order.memory = &slot.memory;
    order.bytes_done = &slot.bytes_done;
    sender.deliver(std::move(order),
                   [this, number](absl::Status status) { done[number].push_back(std::move(status)); });
  }
  bool ends(std::uint64_t number) {
    const bool ended = line.run_until([&] { return done.contains(number); });
    line.run();
    EXPECT_LE(done[number].size(), 1u) << "it ended more than once";
    return ended;
  }
  bool is_shown(WorkerId worker, std::size_t mirrors) {
    return line.run_until([&] { return line.messages_to(worker).size() == mirrors; });
  }

  TrainersSlot slot{0}, other{1};
  std::vector<std::string> told;
  std::map<std::uint64_t, std::vector<absl::Status>> done;
  test::HostQueueHooks hooks;
  PostedLine line;
  std::unique_ptr<Inner> made = std::make_unique<Inner>(told);
  Inner& inner = *made;
  std::unique_ptr<Inner> made_others = std::make_unique<Inner>(told, "others' ");
  Inner& others = *made_others;
  AutoSender sender{std::move(made), std::move(made_others),
                    [this](int) { return test::host_relay_memory(hooks).open_queue(); }};
};

}  // namespace bascule::inline v0
