// A sender, and the folder where the test's workers find it.
#pragma once

#include "sender/wire_worker.h"  // first: see there

#include <optional>
#include <string_view>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/test_model.h"
#include "support/timing.h"
#include <bascule/sender/sender.h>
#include <bascule/transport/status.h>

namespace bascule::test {

class Wired : public testing::Test {
 protected:
  // Wire workers send no heartbeats, so silence is allowed. Late answers are given up soon.
  void listen(std::string_view options = "") {
    const auto soon = cat("timeout=", absl::ToInt64Milliseconds(silence()),
                          "ms&flip_timeout=", absl::ToInt64Milliseconds(silence()), "ms");
    auto made = Sender::listen({.endpoint = cat("shm://", folder_.path().string(), "?suspect_after=60s&",
                                                options.empty() ? std::string_view(soon) : options)});
    ASSERT_THAT(made, IsOk());
    sender_.emplace(*std::move(made));
    model_.step(1);
    ASSERT_THAT(sender_->register_model(model_.source()), IsOk());
  }
  std::unique_ptr<WireWorker> connect() const { return std::make_unique<WireWorker>(folder_.path()); }
  // A version that only `worker` takes; it releases the previous one.
  void send_to(WireWorker& worker, const Prepare& before, Prepare& now) {
    ASSERT_THAT(sender_->send_async(), IsOk());
    now = worker.take();
    worker.release(before);
    ASSERT_THAT(sender_->wait_async(patience()), IsOk());
  }

  const TempFolder folder_;
  TestModel model_{ModelSize::kTiny};
  std::optional<Sender> sender_;
};

}  // namespace bascule::test
