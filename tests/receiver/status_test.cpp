// bascule-status at endpoints of real processes, and the library behind it where a fault must be injected.
#include "receiver/status.h"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "kernels/digest.h"
#include "kernels/thread_pool.h"
#include "sender/sender.h"
#include "support/environment.h"
#include "support/fake_scheme.h"
#include "support/port.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include "support/trainer.h"
#include "support/worker.h"
#include "transport/text.h"

namespace bascule::test {
namespace {

using absl::StatusCode;
using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Ran {
  int exit_status = -1;
  std::string text;  // of stdout and stderr
};

Ran run(const std::string& arguments) {
  Ran ran;
  std::FILE* const pipe = ::popen(cat(BASCULE_STATUS " ", arguments, " 2>&1").c_str(), "r");
  if (pipe == nullptr) return ran;
  std::array<char, 4096> bytes{};
  while (const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), pipe))
    ran.text.append(bytes.data(), count);
  const int status = ::pclose(pipe);
  ran.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

json run_json(const std::string& target, int exit_status = 0) {
  const Ran ran = run(cat("--json '", target, "'"));
  EXPECT_EQ(ran.exit_status, exit_status) << ran.text;
  const json page = json::parse(ran.text, nullptr, false);
  EXPECT_TRUE(page.is_object()) << ran.text;
  return page;
}

class StatusTest : public testing::Test {
 protected:
  std::string url(std::string_view scheme, std::string_view options = "") const {
    return cat(scheme, "://", folder_.path().string(), "/e?heartbeat=50ms", options.empty() ? "" : "&", options);
  }
  std::string folder() const { return (folder_.path() / "e").string(); }
  // A sender in this process, with what a test does to it by hand.
  void listen(const std::string& endpoint) {
    absl::StatusOr<Sender> made =
        Sender::listen({.endpoint = endpoint, .threads = 1, .scheme = is_fake(endpoint) ? &fake_ : nullptr});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  }
  absl::StatusOr<Observation> look(const std::string& endpoint) {
    return observe({.target = endpoint, .scheme = is_fake(endpoint) ? &fake_ : nullptr});
  }
  std::unique_ptr<WorkerProcess> join(const std::string& endpoint, std::string name) {
    auto worker = std::make_unique<WorkerProcess>(
        WorkerArguments{.endpoint = endpoint, .name = std::move(name), .model = ModelSize::kSmall});
    worker->tell("run");
    return worker;
  }
  // Looks until `done`; the last observation.
  Observation look_until(const std::string& endpoint, const std::function<bool(const Observation&)>& done) {
    for (const Deadline deadline(patience()); !deadline.passed();) {
      absl::StatusOr<Observation> seen = look(endpoint);
      EXPECT_THAT(seen, IsOk());
      if (!seen.ok() || done(*seen)) return seen.value_or(Observation());
    }
    ADD_FAILURE() << "it never came to that";
    return {};
  }

  TempFolder folder_;
  TestModel model_;
  FakeFaults faults_;
  const Scheme fake_ = fake_scheme(faults_);
  std::optional<Sender> sender_;
};

const WorkerStatus* worker_of(const Observation& seen, std::string_view name) {
  const auto found = std::ranges::find(seen.status.workers, name, &WorkerStatus::worker);
  return found == seen.status.workers.end() ? nullptr : &*found;
}

TEST_F(StatusTest, ShowsWhoServesWhatAndVerifiesIt) {
  Trainer trainer(url("shm"), 1, kHost);
  EXPECT_EQ(run_json(url("shm"))["version"], 0) << "before the first";
  const auto a = join(url("shm"), "engine-0"), b = join(url("shm"), "engine-1");
  Sent sent;
  for (const Deadline deadline(patience()); sent.serving < 2 && !deadline.passed();) sent = trainer.tell("send");
  sent = trainer.tell("send");

  look_until(url("shm"), [](const Observation& now) {  // they say that they released the older a moment after the ack
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

  // The folder alone says as much; and the page for a person names the same.
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
  }
  EXPECT_EQ(a->report().wrong, "") << "and nobody who reads was disturbed";
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
  EXPECT_THAT(seen.wrong(), ElementsAre(AllOf(HasSubstr("worker bad is poisoned: "), HasSubstr("digest"))));
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
  EXPECT_THAT(seen.wrong(), IsEmpty());
}

TEST_F(StatusTest, OverTcpItNeedsTheTokenAndSeesNoBytes) {
  const ReservedPort port;
  const std::string endpoint =
      cat("fake://127.0.0.1:", port.number(), "?state=", folder_.path().string(), "&heartbeat=50ms");
  {
    const Environment token("BASCULE_TOKEN", "token");
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
  const Environment other("BASCULE_TOKEN", "another");
  EXPECT_THAT(look(endpoint), StatusIs(StatusCode::kUnauthenticated, HasSubstr("the same token")));
}

TEST_F(StatusTest, WhereNothingCanBeSaidItSaysWhy) {
  const auto unreached = [](const std::string& arguments, const std::string& why) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_status, 2) << arguments;
    EXPECT_THAT(ran.text, AllOf(HasSubstr("bascule-status: "), HasSubstr(why))) << arguments;
  };
  unreached(url("shm"), "no sender has been at");
  unreached(folder(), "is no folder");
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

// ---- versions that a scheme keeps, with no sender alive ----

// Two versions: the newest, whose bytes are as told, and an older one.
class Kept final : public ReceiverTransport {
 public:
  explicit Kept(bool spoilt) {
    kernels::ThreadPool pool(1);
    digest_ = kernels::digest(bytes_, pool);
    if (spoilt) bytes_[1] ^= std::byte{1};
  }
  absl::Status accept(ReceivedOffer) override { return absl::InternalError("nobody offered anything"); }
  absl::StatusOr<SlotView> prepare(const Publication&, Deadline) override {
    return absl::InternalError("nobody published anything");
  }
  absl::StatusOr<std::vector<FoundVersion>> find_versions(Version) override {
    std::vector<FoundVersion> found;
    for (const Version version : {7, 6})
      found.push_back({.publication = {.version = version,
                                       .slot = {3, static_cast<std::uint32_t>(version % 2)},
                                       .bytes = bytes_.size(),
                                       .digest = digest_},
                       .layout = Layout::arrange({{"w", DType::kU8, {16}}}, {}).value(),
                       .view = {.slot = {3, static_cast<std::uint32_t>(version % 2)}, .bytes = bytes_},
                       .description = "sixteen bytes"});
    return found;
  }
  void release(SlotId) override {}

 private:
  std::vector<std::byte> bytes_ = std::vector<std::byte>(16, std::byte{5});
  std::optional<Digest> digest_;
};

TEST_F(StatusTest, AFolderOfFilesIsReadWithNobodyAlive) {
  listen(url("memmap"));
  for (std::uint64_t generation = 1; generation <= 2; ++generation) {
    model_.step(generation);
    ASSERT_THAT(sender_->send(), IsOk());
  }
  sender_.reset();
  for (const std::string& target : {url("memmap"), folder()}) {
    const json page = run_json(target);
    EXPECT_EQ(page["sender"], nullptr);
    EXPECT_EQ(page["version"], 2);
    ASSERT_EQ(page["slots"].size(), 2u);
    for (const json& slot : page["slots"]) EXPECT_EQ(slot["check"], "verified");
  }
  {  // a byte of a tensor, where no header is
    std::fstream file(std::filesystem::canonical(std::filesystem::path(folder()) / "model.safetensors"),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const auto last = static_cast<char>(file.peek() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(last);
  }
  EXPECT_EQ(run_json(folder(), 1)["ok"], false);
}

TEST_F(StatusTest, WithoutASenderItVerifiesWhatASchemeKeeps) {
  for (const bool spoilt : {false, true}) {
    const Scheme keeps{
        .name = "keeps", .keeps_files = true, .make_sender = {}, .make_receiver = [spoilt](const Endpoint&) {
          return std::make_unique<Kept>(spoilt);
        }};
    const absl::StatusOr<Observation> seen = observe({.target = url("keeps"), .scheme = &keeps});
    ASSERT_THAT(seen, IsOk());
    EXPECT_FALSE(seen->sender);
    EXPECT_EQ(seen->status.scheme, "keeps");
    EXPECT_EQ(seen->status.epoch, 3u);
    EXPECT_EQ(seen->status.version, 7u);
    ASSERT_EQ(seen->slots.size(), 2u);
    EXPECT_EQ(seen->slots[0].says.state, "published");
    EXPECT_EQ(seen->slots[1].says.state, "older");
    EXPECT_EQ(seen->slots[0].check, spoilt ? SlotCheck::kDiffers : SlotCheck::kVerified);
    if (spoilt) {
      EXPECT_THAT(seen->wrong(), Contains(HasSubstr("slot 1 of version 7")));
    } else {
      EXPECT_THAT(seen->wrong(), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace bascule::test
