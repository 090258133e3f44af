// vllm_bridge_config.json, written and read.
#include <bascule/trainer_ref/program/bridge_config.h>

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "support/environment.h"
#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule::ref {
namespace {

using test::IsOk;
using test::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Bridge : public ::testing::Test {
 protected:
  fs::path file() const { return folder_.path() / kBridgeFile; }
  absl::Status read(const std::string& text) const {
    std::ofstream(file()) << text;
    return read_bridge_config(file(), BridgeOwner::kAnyUser).status();
  }
  const test::TempFolder folder_;
};

TEST_F(Bridge, IsReadAsItWasWritten) {
  const BridgeConfig written{.engine = "http://127.0.0.1:9001", .sync = "shm:///tmp/\"quoted\"", .adapter = "policy"};
  const auto kept =
      BridgeFile::write(file(), written, "models/\xff", {{.name = "a", .dtype = DType::kBF16, .shape = {2, 3}}});
  ASSERT_THAT(kept, IsOk());
  const absl::StatusOr<BridgeConfig> read = read_bridge_config(file(), BridgeOwner::kThisUser);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->engine, written.engine);
  EXPECT_EQ(read->sync, written.sync);
  EXPECT_EQ(read->adapter, written.adapter);
}

TEST_F(Bridge, IsRemovedByTheEngineThatWroteItLast) {
  auto first = BridgeFile::write(file(), {.engine = "http://127.0.0.1:1", .sync = "shm:///a"}, "", {});
  auto second = BridgeFile::write(file(), {.engine = "http://127.0.0.1:2", .sync = "shm:///b"}, "", {});
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  first->reset();
  const absl::StatusOr<BridgeConfig> read = read_bridge_config(file(), BridgeOwner::kThisUser);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->engine, "http://127.0.0.1:2");
  second->reset();
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Bridge, ThatWasFoundMustBeAFileOfThisUser) {
  const auto found = [this] { return read_bridge_config(file(), BridgeOwner::kThisUser).status(); };
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_THAT(found(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("what is no file")));
  fs::remove(file());
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  std::ofstream(file()) << R"({"bascule": {"engine": "http://127.0.0.1:1", "sync": "shm:///a"}})";
  ASSERT_THAT(found(), IsOk());
  ASSERT_EQ(::chown(file().c_str(), 65534, 65534), 0);
  EXPECT_THAT(found(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of the user 65534")));
}

TEST_F(Bridge, OtherFilesAreRefusedWithWhatToDo) {
  EXPECT_THAT(read_bridge_config(file(), BridgeOwner::kThisUser).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(file().string())));
  const auto refused = [](const char* words) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)); };
  EXPECT_THAT(read("[]"), refused("expected a JSON object"));
  EXPECT_THAT(read("{"), refused(kBridgeFile));
  EXPECT_THAT(read("{}"), refused("expected the file of a bascule-engine"));
  EXPECT_THAT(read(R"({"ipc_handles": {}})"), refused("a trainer writes while they are read"));
  EXPECT_THAT(read(R"({"bascule": {"engine": "http://127.0.0.1:1"}})"), refused("--sync"));
  EXPECT_THAT(read(R"({"bascule": {"engine": "http://127.0.0.1:1", "sync": "none"}})"), refused("\"none\""));
  EXPECT_THAT(read(R"({"bascule": {"engine": 1, "sync": "shm:///x"}})"), refused("engine"));
}

TEST(BridgeFile, IsWhereTheScriptsExpectIt) {
  const test::Environment no_path("VLLM_BRIDGE_CONFIG_PATH", nullptr);
  {
    const test::Environment off("VLLM_ENABLE_SHARED_WEIGHTS", nullptr), no_folder("LOGDIR", nullptr);
    EXPECT_EQ(bridge_file_of_environment(), std::nullopt);
    EXPECT_THAT(bridge_files_to_try(), ElementsAre(kBridgeFile, fs::path("/tmp/atropos_bridge") / kBridgeFile));
  }
  const test::Environment on("VLLM_ENABLE_SHARED_WEIGHTS", "1");
  {
    const test::Environment no_folder("LOGDIR", nullptr);
    EXPECT_EQ(bridge_file_of_environment(), kBridgeFile);
  }
  const test::Environment folder("LOGDIR", "/logs");
  EXPECT_EQ(bridge_file_of_environment(), "/logs/vllm_bridge_config.json");
  EXPECT_EQ(bridge_files_to_try().front(), "/logs/vllm_bridge_config.json");
  const test::Environment path("VLLM_BRIDGE_CONFIG_PATH", "/tmp/b.json");
  EXPECT_EQ(bridge_file_of_environment(), "/tmp/b.json");
}

}  // namespace
}  // namespace bascule::ref
