#include "support/processes/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "support/devices/device_bytes.h"
#include "support/processes/doom.h"
#include "support/schemes/fake_scheme.h"
#include "support/schemes/host_schemes.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>

namespace bascule::test {
namespace {

using Json = nlohmann::json;

Json answer_of(const absl::Status& status) { return {{"error", status.ok() ? "" : status.ToString()}}; }

Json answer_of(const absl::StatusOr<SendReport>& report, std::uint64_t generation) {
  Json answer = answer_of(report.status());
  answer["generation"] = generation;
  if (!report.ok()) return answer;
  answer["epoch"] = report->epoch;
  answer["version"] = report->version;
  answer["serving"] = std::ranges::count(report->workers, WorkerState::kServing, &WorkerReport::state);
  return answer;
}

}  // namespace

int run_trainer(const std::string& endpoint, std::uint64_t generation, int device, LineEnd commands) {
  FakeFaults faults;
  const Scheme fake = fake_scheme(faults);
  TestModel model;
  warm_up(device);
  model.place_on(device);
  Doom doom;
  absl::StatusOr<Sender> sender = Sender::listen({.endpoint = endpoint,
                                                  .threads = 2,
                                                  .trace = [&doom](std::string_view) { doom.count(); },
                                                  .scheme = is_fake(endpoint) ? &fake : host_scheme(endpoint)});
  absl::Status status = sender.status();
  if (status.ok()) status = sender->register_model(model.source());
  commands.write(answer_of(status).dump());
  if (!status.ok()) return 1;

  std::optional<WritableSlot> loan;
  const auto step = [&] { model.step(generation++); };
  bool running = false;
  while (true) {
    const absl::StatusOr<std::string> line =
        commands.read(Deadline(running ? absl::ZeroDuration() : absl::InfiniteDuration()));
    if (absl::IsDeadlineExceeded(line.status())) {
      step();
      const absl::Status sent = sender->send().status();
      // If this process or a reader was stopped for a while, a send may be late, or a late reader may give it up.
      if (sent.ok() || absl::IsDeadlineExceeded(sent) || absl::IsAborted(sent)) continue;
      std::fprintf(stderr, "trainer: send: %s\n", sent.ToString().c_str());
      return 1;
    }
    if (!line.ok()) return 0;
    running = false;
    std::istringstream words(*line);
    std::string verb, hook;
    int number = 0;
    words >> verb;
    Json answer = answer_of(absl::OkStatus());
    if (verb == "send") {
      step();
      answer = answer_of(sender->send(), generation - 1);
    } else if (verb == "step") {
      absl::StatusOr<WritableSlot> slot = sender->loan();
      if (slot.ok()) step();
      answer = slot.ok() ? answer_of(sender->publish(*std::move(slot)), generation - 1) : answer_of(slot.status());
    } else if (verb == "die" && words >> number) {
      doom.set(number);
    } else if (verb == "run") {
      running = true;
    } else if (verb == "begin") {
      step();
      answer = answer_of(sender->send_async());
    } else if (verb == "loan") {
      absl::StatusOr<WritableSlot> slot = sender->loan();
      answer = answer_of(slot.status());
      if (slot.ok()) loan.emplace(*std::move(slot));
    } else if (verb == "fault" && words >> hook >> number && faults.set(hook, number)) {
    } else if (verb == "quit") {
      return 0;
    } else {
      answer["error"] = "unknown command: " + *line;
    }
    commands.write(answer.dump());
  }
}

Trainer::Trainer(const std::string& endpoint, std::uint64_t generation, int device)
    : process_({BASCULE_TEST_TRAINER, endpoint, std::to_string(generation), std::to_string(device)}) {
  EXPECT_EQ(tell("").error, "");
}

Sent Trainer::tell(std::string_view command) {
  std::optional<Sent> sent = try_tell(command);
  if (sent) return *std::move(sent);
  ADD_FAILURE() << "the trainer gave no answer to '" << command << "'";
  return {.error = "no answer"};
}

Sent Trainer::send_until(int serving, std::string_view command) {
  std::optional<Sent> sent = Sent{};
  for (const Deadline deadline(patience()); sent && sent->serving < serving && !deadline.passed();)
    sent = try_tell(command);
  if (!sent) sent = Sent{.error = "no answer"};
  EXPECT_GE(sent->serving, serving) << command << ": " << sent->error;
  return *std::move(sent);
}

std::optional<Sent> Trainer::try_tell(std::string_view command) {
  if (!command.empty()) process_.lines().write(command);
  const absl::StatusOr<std::string> line = process_.lines().read(Deadline(2 * patience()));
  if (!line.ok()) return std::nullopt;
  const Json answer = Json::parse(*line);
  return Sent{.error = answer.value("error", ""),
              .epoch = answer.value("epoch", Epoch{0}),
              .version = answer.value("version", Version{0}),
              .generation = answer.value("generation", std::uint64_t{0}),
              .serving = answer.value("serving", 0)};
}

}  // namespace bascule::test
