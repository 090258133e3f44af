// An engine that follows a folder of endpoints: what appears is joined, and what goes is left.
#include <bascule/receiver/endpoint_folder.h>

#include <gmock/gmock.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "support/status.h"
#include "support/temp_folder.h"
#include "support/timing.h"
#include <bascule/receiver/receiver.h>
#include <bascule/sender/sender.h>
#include <bascule/transport/deadline.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Pair;

class EndpointFolderTest : public testing::Test {
 protected:
  fs::path folder() const { return folder_.path() / "adapters"; }
  std::string url(const std::string& name = "") const {
    return cat("shm://", (name.empty() ? folder() : folder() / name).string(), "?suspect_after=7s");
  }
  Sender sender(const std::string& name) {
    absl::StatusOr<Sender> sender = Sender::listen({.endpoint = url(name), .threads = 1, .expect_workers = {0}});
    EXPECT_THAT(sender, IsOk());
    EXPECT_THAT(sender->register_model(host_tensors({{{"a", DType::kF32, {4}}, values_.data()}})), IsOk());
    return *std::move(sender);
  }
  // Waits until the folder has a change; what is there then.
  std::map<std::string, std::string> next(EndpointFolder& endpoints) {
    pollfd poll{.fd = endpoints.descriptor(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(::poll(&poll, 1, static_cast<int>(absl::ToInt64Milliseconds(patience()))), 1);
    const auto now = endpoints.endpoints();
    EXPECT_THAT(now, IsOk());
    return now.value_or(std::map<std::string, std::string>());
  }
  // The same, until `names` are there.
  void wait_for(EndpointFolder& endpoints, const std::vector<std::string>& names) {
    std::vector<std::string> there;
    for (const Deadline deadline(patience()); there != names && !deadline.passed();) {
      there.clear();
      for (const auto& [name, url] : next(endpoints)) there.push_back(name);
    }
    EXPECT_EQ(there, names);
  }

  const TempFolder folder_;
  std::array<float, 4> values_{1, 2, 3, 4};
};

TEST_F(EndpointFolderTest, WhatAppearsIsListedAndWhatIsRemovedIsNot) {
  absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url());
  ASSERT_THAT(endpoints, IsOk());
  EXPECT_THAT(*endpoints->endpoints(), IsEmpty());
  std::optional<Sender> math = sender("math"), code = sender("code");
  wait_for(*endpoints, {"code", "math"});
  EXPECT_THAT(*endpoints->endpoints(), ElementsAre(Pair("code", url("code")), Pair("math", url("math"))));
  code.reset();
  EXPECT_THAT(*endpoints->endpoints(), ElementsAre(Key("code"), Key("math")))
      << "its engine serves on without a sender";
  fs::remove_all(folder() / "code");
  wait_for(*endpoints, {"math"});
  code = sender("code");
  wait_for(*endpoints, {"code", "math"});
}

TEST_F(EndpointFolderTest, AnEngineJoinsWhatAppears) {
  absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url());
  ASSERT_THAT(endpoints, IsOk());
  std::map<std::string, Receiver> receivers;
  for (const std::string name : {"a", "b", "c"}) {
    Sender adapter = sender(name);
    for (const Deadline deadline(patience()); !receivers.contains(name) && !deadline.passed();)
      for (const auto& [found, endpoint] : next(*endpoints))
        if (!receivers.contains(found))
          receivers.emplace(found, *Receiver::connect({.endpoint = endpoint, .worker = "engine"}));
    ASSERT_TRUE(receivers.contains(name));
    receivers.at(name).join();
    ASSERT_THAT(adapter.wait_for_workers(1, patience()), IsOk());
    ASSERT_THAT(adapter.send_async(), IsOk());
    ASSERT_THAT(receivers.at(name).wait_ready(patience()), IsOk());
    EXPECT_TRUE(receivers.at(name).commit().changed);
    EXPECT_THAT(adapter.wait_async(), IsOk());
  }
}

TEST_F(EndpointFolderTest, OtherThingsInTheFolderAreNoEndpoints) {
  const Sender real = sender("real");
  fs::create_directory(folder() / "empty");
  fs::create_directory_symlink(folder() / "real", folder() / "link");
  fs::create_directory(folder() / "what?slots=1");
  fs::copy_file(folder() / "real/sender.lock", folder() / "what?slots=1/sender.lock");
  std::ofstream(folder() / "file").put('x');
  absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url());
  ASSERT_THAT(endpoints, IsOk());
  EXPECT_THAT(*endpoints->endpoints(), ElementsAre(Key("real")));
}

// Makes modes apply to this thread, even if root runs the test.
class ModesApply {
 public:
  ModesApply() {
    std::array<__user_cap_data_struct, 2> now{};
    EXPECT_EQ(::syscall(SYS_capget, &header_, now.data()), 0);
    before_ = now;
    now[0].effective &= ~(CAP_TO_MASK(CAP_DAC_OVERRIDE) | CAP_TO_MASK(CAP_DAC_READ_SEARCH));
    EXPECT_EQ(::syscall(SYS_capset, &header_, now.data()), 0);
  }
  ~ModesApply() { EXPECT_EQ(::syscall(SYS_capset, &header_, before_.data()), 0); }
  ModesApply(const ModesApply&) = delete;
  ModesApply& operator=(const ModesApply&) = delete;

 private:
  __user_cap_header_struct header_{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> before_{};
};

TEST_F(EndpointFolderTest, AFolderThatCannotBeReadDoesNotHideTheOthers) {
  const Sender real = sender("real");
  fs::create_directory(folder() / "locked");
  fs::permissions(folder() / "locked", fs::perms::none);
  const ModesApply modes_apply;
  absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url());
  ASSERT_THAT(endpoints, IsOk());
  const auto found = endpoints->endpoints();
  ASSERT_THAT(found, IsOk());
  EXPECT_THAT(*found, ElementsAre(Key("real")));
}

TEST_F(EndpointFolderTest, AFolderThatIsRemovedIsMadeAgain) {
  absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url());
  ASSERT_THAT(endpoints, IsOk());
  {
    const Sender first = sender("a");
    wait_for(*endpoints, {"a"});
  }
  fs::remove_all(folder());
  wait_for(*endpoints, {});
  const Sender again = sender("a");
  wait_for(*endpoints, {"a"});
}

// As for shm:///run/user/1000/grpo and its adapters, of which any may come first.
TEST_F(EndpointFolderTest, TheFolderAroundItMayBecomeAnEndpoint) {
  const mode_t umask = ::umask(022);
  const absl::StatusOr<EndpointFolder> endpoints = EndpointFolder::open(url("run/adapters"));
  const Sender adapter = sender("other/adapters/math");
  ::umask(umask);
  ASSERT_THAT(endpoints, IsOk());
  for (const std::string name : {"run", "other"}) EXPECT_THAT(Sender::listen({.endpoint = url(name)}), IsOk());
}

TEST_F(EndpointFolderTest, RefusesWhatIsNoFolderOfEndpoints) {
  EXPECT_THAT(EndpointFolder::open("shm://127.0.0.1:29500").status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected a folder")));
  const Sender one = sender("one");
  EXPECT_THAT(EndpointFolder::open(url("one")).status(),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("one"), HasSubstr("is itself an endpoint"))));
}

}  // namespace
}  // namespace bascule::test
