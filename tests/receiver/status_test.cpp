// bascule-status at endpoints of real processes, and its library if a fault must be injected.
#include "receiver/status_fixture.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "support/environment.h"
#include "support/port.h"
#include "support/processes/trainer.h"
#include <bascule/schemes/registry.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(StatusProgram, SaysThatItsOutputCouldNotBeWritten) {
  EXPECT_EQ(run("-h >/dev/full").exit_status, 1);
  EXPECT_THAT(run("--help 2>&1 >/dev/full").text,
              HasSubstr("bascule-status: write to stdout: No space left on device"));
  EXPECT_EQ(run("-h").exit_status, 0);
}

TEST(StatusProgram, RefusesBadFlagsWithAnExample) {
  for (const char* flags : {"--jsn shm:///tmp/x", "", "shm:///a shm:///b"}) {
    const Ran ran = run(flags);
    EXPECT_EQ(ran.exit_status, 2) << flags;
    EXPECT_THAT(ran.text, HasSubstr(", as bascule-status ")) << flags;
  }
}

TEST_F(StatusTest, ShowsWhoServesWhatAndVerifiesIt) {
  Trainer trainer(url("shm"), 1, kHost);
  EXPECT_EQ(run_json(url("shm"))["version"], 0) << "before the first";
  const auto a = join(url("shm"), "engine-0"), b = join(url("shm"), "engine-1");
  trainer.send_until(2);
  const Sent sent = trainer.tell("send");

  look_until(url("shm"), [](const Observation& now) {  // they release the older version a moment after the ack
    return std::ranges::all_of(now.status.workers, [](const auto& worker) { return worker.leases.size() == 1; });
  });

  const json page = run_json(url("shm"));
  EXPECT_EQ(page["ok"], true);
  EXPECT_EQ(page["wrong"], json::array());
  EXPECT_EQ(page["scheme"], "shm");
  EXPECT_EQ(page["place"], folder());
  EXPECT_EQ(page["sender"]["pid"], trainer.process().pid());
  EXPECT_EQ(page["epoch"], sent.epoch);
  EXPECT_EQ(page["version"], sent.version);
  EXPECT_EQ(page["layout"]["tensors"].get<std::size_t>() + page["layout"]["aliases"].get<std::size_t>(),
            model_.specs().size());
  EXPECT_EQ(page["layout"]["fingerprint"].get<std::string>().size(), 32u);
  ASSERT_EQ(page["workers"].size(), 2u);
  ASSERT_EQ(page["slots"].size(), 2u);
  for (const json& worker : page["workers"]) {
    EXPECT_EQ(worker["pid"], (worker["worker"] == "engine-0" ? a : b)->process().pid());
    EXPECT_EQ(worker["state"], "serving");
    EXPECT_EQ(worker["version"], sent.version);
    EXPECT_EQ(worker["leases"].size(), 1u);
  }
  for (const json& slot : page["slots"]) {
    const bool newest = slot["version"] == sent.version;
    EXPECT_EQ(slot["state"], newest ? "published" : "free");
    EXPECT_EQ(slot["check"], "verified");
    EXPECT_EQ(slot["digest"].get<std::string>().size(), 32u);
    EXPECT_EQ(slot["holders"], newest ? json({"engine-0", "engine-1"}) : json::array());
  }

  // The folder alone gives the same; and the page for a person names the same.
  EXPECT_EQ(run_json(folder()), page);
  const Ran text = run(folder());
  EXPECT_EQ(text.exit_status, 0);
  EXPECT_THAT(text.text, AllOf(HasSubstr("engine-0"), HasSubstr("engine-1"), HasSubstr(cat("version  ", sent.version)),
                               HasSubstr(page["layout"]["fingerprint"].get<std::string>()),
                               HasSubstr("2 of 2 workers serve the newest version, 2 of 2 slots verified")));
}

TEST_F(StatusTest, AByteThatChangedIsWrongAndNamed) {
  listen(url("shm"));
  absl::StatusOr<WritableSlot> loan = sender_->loan();
  ASSERT_THAT(loan, IsOk());
  write_generation(loan->tensors(), 1);
  std::byte& byte = *loan->tensors().front().data;  // the sender's own mapping, which no seal keeps it from
  ASSERT_THAT(sender_->publish(*std::move(loan)), IsOk());
  EXPECT_EQ(run(folder()).exit_status, 0);

  byte ^= std::byte{1};
  const json page = run_json(folder(), 1);
  EXPECT_EQ(page["ok"], false);
  ASSERT_EQ(page["wrong"].size(), 1u);
  EXPECT_THAT(page["wrong"][0].get<std::string>(),
              AllOf(HasSubstr("slot 0 of version 1 has the digest "), HasSubstr("its bytes changed")));
  EXPECT_EQ(page["slots"][0]["check"], "differs");
  EXPECT_EQ(page["slots"][1]["check"], "not whole");
  const Ran text = run(folder());
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.text, HasSubstr("WRONG: slot 0 of version 1"));
  byte ^= std::byte{1};
  EXPECT_EQ(run(folder()).exit_status, 0);
}

TEST_F(StatusTest, AWriterThatNeverPausesRaisesNoFalseAlarm) {
  Trainer trainer(url("shm"), 1, kHost);
  const auto a = join(url("shm"), "a");
  trainer.tell("run");
  a->wait_for_version(2);
  for (int i = 0; i < 30; ++i) {
    const absl::StatusOr<Observation> seen = look(url("shm"));
    ASSERT_THAT(seen, IsOk());
    EXPECT_THAT(seen->wrong(), IsEmpty());
    for (const ObservedSlot& slot : seen->slots) {
      if (slot.says.state == "writing") {
        EXPECT_THAT(slot.check, testing::AnyOf(SlotCheck::kNotWhole, SlotCheck::kChanged));
      }
      if (slot.says.state == "published") {
        EXPECT_EQ(slot.says.version, seen->status.version);
      }
    }
  }
  EXPECT_EQ(a->report().wrong, "") << "and no reader was disturbed";
}

TEST_F(StatusTest, SeveralThreadsObserveAtOnceWithoutAFalseAlarm) {
  model_ = TestModel(ModelSize::kLarge);  // several tiles for several cores
  listen(url("shm"));
  ASSERT_THAT(sender_->send(), IsOk());
  std::atomic<int> wrong = 0;
  const auto look_often = [&] {
    for (int i = 0; i < 30; ++i) {
      const absl::StatusOr<Observation> seen = look(url("shm"));
      wrong += !seen.ok() || !seen->wrong().empty();
    }
  };
  {
    const std::jthread other(look_often), another(look_often);
    look_often();
  }
  EXPECT_EQ(wrong, 0);
}

// The receiver's end of a scheme, with a hook before each read of a slot.
class Interrupted final : public ReceiverTransport {
 public:
  Interrupted(std::unique_ptr<ReceiverTransport> inner, std::function<void()> before)
      : inner_(std::move(inner)), before_(std::move(before)) {}
  absl::Status accept(ReceivedOffer offer) override { return inner_->accept(std::move(offer)); }
  absl::StatusOr<SlotView> prepare(const Publication& publication, Deadline deadline) override {
    before_();
    return inner_->prepare(publication, deadline);
  }
  void end_read(SlotId slot) override { inner_->end_read(slot); }

 private:
  const std::unique_ptr<ReceiverTransport> inner_;
  const std::function<void()> before_;
};

class InterruptedLook : public StatusTest {
 protected:
  // Observes, and calls `before` before each read of a slot.
  Observation look_while(const std::function<void()>& before) {
    Scheme interrupted = fake_;
    interrupted.make_receiver = [&](const Endpoint& endpoint) -> std::unique_ptr<ReceiverTransport> {
      return std::make_unique<Interrupted>(fake_.make_receiver(endpoint), before);
    };
    absl::StatusOr<Observation> seen = observe({.target = url("fake"), .scheme = &interrupted});
    EXPECT_THAT(seen, IsOk());
    return seen.value_or(Observation());
  }
};

TEST_F(InterruptedLook, ASlotsStateIsOfTheMomentOfItsCheck) {
  listen(url("fake"));
  ASSERT_THAT(sender_->send(), IsOk());
  absl::StatusOr<WritableSlot> lent = sender_->loan();
  ASSERT_THAT(lent, IsOk());
  write_generation(lent->tensors(), 2);
  int reads = 0;
  const Observation seen = look_while([&] {  // slot 1 was `writing` when the sender was asked
    if (reads++ == 0) {
      EXPECT_THAT(sender_->publish(*std::move(lent)), IsOk());
    }
  });
  EXPECT_EQ(reads, 2) << "each slot once";
  EXPECT_EQ(seen.status.version, 2u);
  ASSERT_EQ(seen.slots.size(), 2u);
  EXPECT_EQ(seen.slots[0].says.state, "free");
  EXPECT_EQ(seen.slots[0].says.version, 1u);
  EXPECT_EQ(seen.slots[1].says.state, "published");
  EXPECT_EQ(seen.slots[1].says.version, 2u);
  for (const ObservedSlot& slot : seen.slots) EXPECT_EQ(slot.check, SlotCheck::kVerified);
}

TEST_F(InterruptedLook, ASlotThatIsWrittenAtEachTryHasChanged) {
  listen(url("fake"));
  for (int i = 0; i < 2; ++i) ASSERT_THAT(sender_->send(), IsOk());
  int reads = 0;
  const Observation seen = look_while([&] {
    ++reads;
    for (int i = 0; i < 2; ++i) EXPECT_THAT(sender_->send(), IsOk());  // both slots
  });
  EXPECT_EQ(reads, 10) << "five tries of two slots";
  EXPECT_THAT(seen.wrong(), IsEmpty());
  EXPECT_EQ(seen.slots[0].check, SlotCheck::kChanged);
  for (const ObservedSlot& slot : seen.slots)
    if (slot.says.state == "published") {
      EXPECT_EQ(slot.says.version, seen.status.version) << "also of a slot that changed";
    }
}

TEST_F(InterruptedLook, ThatAVersionDifferedIsSaidThoughTheSlotWasWrittenSince) {
  listen(url("fake"));
  absl::StatusOr<WritableSlot> loan = sender_->loan();
  ASSERT_THAT(loan, IsOk());
  write_generation(loan->tensors(), 1);
  std::byte& byte = *loan->tensors().front().data;
  ASSERT_THAT(sender_->publish(*std::move(loan)), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  byte ^= std::byte{1};
  int reads = 0;
  const Observation seen = look_while([&] {
    if (++reads == 2) {
      for (int i = 0; i < 2; ++i) EXPECT_THAT(sender_->send(), IsOk());
    }
  });
  EXPECT_THAT(seen.wrong(), ElementsAre(HasSubstr("slot 0 of version 1 has the digest ")));
}

TEST_F(StatusTest, APoisonedWorkerIsWrongUntilItServesAgain) {
  const std::string endpoint = url("fake", "digest=always");
  listen(endpoint);
  ASSERT_THAT(sender_->send(), IsOk());
  auto bad =
      std::make_unique<WorkerProcess>(WorkerArguments{.endpoint = endpoint, .name = "bad", .model = ModelSize::kSmall});
  bad->tell("fault misread 1000000");
  bad->tell("run");
  const Observation seen = look_until(endpoint, [](const Observation& now) { return !now.wrong().empty(); });
  EXPECT_THAT(seen.wrong(), ElementsAre(AllOf(HasSubstr("worker bad is poisoned: "), HasSubstr("digest")),
                                        "no worker serves version 1"));
  ASSERT_NE(worker_of(seen, "bad"), nullptr);
  EXPECT_EQ(worker_of(seen, "bad")->state, "poisoned");

  bad->tell("fault misread 0");
  const Observation well = look_until(endpoint, [](const Observation& now) { return now.wrong().empty(); });
  ASSERT_NE(worker_of(well, "bad"), nullptr);
  EXPECT_EQ(worker_of(well, "bad")->state, "serving");
}

TEST_F(StatusTest, WhoWasEvictedAndMayStillReadIsNamed) {
  const std::string endpoint =
      url("shm", cat("suspect_after=", absl::ToInt64Milliseconds(silence()), "ms&flip_timeout=30s"));
  listen(endpoint);
  const auto a = join(endpoint, "a");
  ASSERT_THAT(sender_->wait_for_workers(1, patience()), IsOk());
  ASSERT_THAT(sender_->send(), IsOk());
  a->process().signal(SIGSTOP);
  const Observation seen = look_until(endpoint, [](const Observation& now) {
    const WorkerStatus* const worker = worker_of(now, "a");
    return worker != nullptr && worker->state == "gone";
  });
  EXPECT_THAT(worker_of(seen, "a")->leases, ElementsAre(0));
  EXPECT_THAT(seen.slots.front().says.holders, ElementsAre("a"));
  EXPECT_THAT(seen.wrong(), ElementsAre("no worker serves version 1"));
}

TEST_F(StatusTest, OverTcpItNeedsTheTokenAndSeesNoBytes) {
  const ReservedPort port;
  const std::string endpoint =
      cat("fake://127.0.0.1:", port.number(), "?state=", folder_.path().string(), "&heartbeat=50ms");
  {
    const Environment token("BASCULE_TOKEN", "the token of this test");
    listen(endpoint);
    ASSERT_THAT(sender_->send(), IsOk());
    const absl::StatusOr<Observation> seen = look(endpoint);
    ASSERT_THAT(seen, IsOk());
    EXPECT_EQ(seen->place, cat("127.0.0.1:", port.number()));
    EXPECT_EQ(seen->status.version, 1u);
    ASSERT_EQ(seen->slots.size(), 2u);
    EXPECT_EQ(seen->slots.front().check, SlotCheck::kUnreached);
    EXPECT_THAT(seen->wrong(), IsEmpty());
  }
  const Environment other("BASCULE_TOKEN", "the token of another");
  EXPECT_THAT(look(endpoint), StatusIs(StatusCode::kUnauthenticated, HasSubstr("the same token")));
}

TEST_F(StatusTest, WhereNothingCanBeSaidItSaysWhy) {
  const auto unreached = [](const std::string& arguments, const std::string& why) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_status, 2) << arguments;
    EXPECT_THAT(ran.text, AllOf(HasSubstr("bascule-status: "), HasSubstr(why))) << arguments;
  };
  unreached(url("shm"), "no sender has been at");
  unreached(folder(), "is not a folder");
  unreached(folder_.path().string(), "no sender is listening");
  unreached("smh:///x", "did you mean shm?");
  unreached("", "expected one endpoint or folder, found 0");
  unreached("/a /b", "found 2");
  unreached("--yaml /a", "unknown flag --yaml");
  const Ran help = run("--help");
  EXPECT_EQ(help.exit_status, 0);
  EXPECT_THAT(help.text, AllOf(HasSubstr("ENDPOINT"), HasSubstr("exit status")));
}

TEST_F(StatusTest, AnotherSchemeThanTheSendersIsNamed) {
  listen(url("fake"));
  EXPECT_THAT(look(url("shm")), StatusIs(StatusCode::kFailedPrecondition,
                                         AllOf(HasSubstr("uses fake, not shm"), HasSubstr(cat("fake://", folder())))));
}

}  // namespace
}  // namespace bascule::test
