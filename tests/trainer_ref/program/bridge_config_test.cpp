// vllm_bridge_config.json, written and read.
#include <bascule/trainer_ref/program/bridge_config.h>

#include <gmock/gmock.h>

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
    return read_bridge_config(file()).status();
  }
  const test::TempFolder folder_;
};

TEST_F(Bridge, IsReadAsItWasWritten) {
  const BridgeConfig written{.engine = "http://127.0.0.1:9001", .sync = "shm:///tmp/\"quoted\"", .adapter = "policy"};
  ASSERT_THAT(
      write_bridge_config(file(), written, "models/\xff", {{.name = "a", .dtype = DType::kBF16, .shape = {2, 3}}}),
      IsOk());
  const absl::StatusOr<BridgeConfig> read = read_bridge_config(file());
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->engine, written.engine);
  EXPECT_EQ(read->sync, written.sync);
  EXPECT_EQ(read->adapter, written.adapter);
}

TEST_F(Bridge, OtherFilesAreRefusedWithWhatToDo) {
  EXPECT_THAT(read_bridge_config(file()).status(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(file().string())));
  const auto refused = [](const char* words) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(words)); };
  EXPECT_THAT(read("[]"), refused("expected a JSON object"));
  EXPECT_THAT(read("{"), refused(kBridgeFile));
  EXPECT_THAT(read("{}"), refused("expected the file of a bascule-engine"));
  EXPECT_THAT(read(R"({"ipc_handles": {}})"), refused("a trainer writes while they are read"));
  EXPECT_THAT(read(R"({"bascule": {"engine": "http://127.0.0.1:1"}})"), refused("--sync"));
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
