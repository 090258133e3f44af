#include <bascule/schemes/nccl/environment.h>

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <list>
#include <random>
#include <string>

#include <nlohmann/json.hpp>

#include "support/environment.h"
#include "support/nccl/fake_nccl.h"
#include "support/status.h"
#include "support/temp_folder.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::FakeNccl;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

class NcclEnvironment : public testing::Test {
 protected:
  NcclEnvironment() {
    FakeNccl::instance().renew();
    FakeNccl::instance().set_version(23003);  // it takes the home folder from HOME
    set("HOME", folder_.path().c_str());
    for (const char* const name :
         {"NCCL_CONF_FILE", "NCCL_PROTO", "NCCL_ALGO", "NCCL_CUMEM_ENABLE", "NCCL_SOCKET_IFNAME", "NCCL_COMM_ID",
          "NCCL_COMM_BLOCKING", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_CGA_CLUSTER_SIZE", "CUDA_LAUNCH_BLOCKING"})
      set(name, nullptr);
  }
  void set(const char* name, const char* value) { variables_.emplace_front(name, value); }
  std::string write(const char* name, const std::string& text) {
    const std::filesystem::path path = folder_.path() / name;
    std::ofstream(path) << text;
    return path.string();
  }
  static absl::StatusOr<Environment> read() { return read_environment(FakeNccl::instance().library()); }

 private:
  test::TempFolder folder_;
  std::list<test::Environment> variables_;  // undone in reverse order
};

TEST_F(NcclEnvironment, HoldsTheVersionAndWhatChangesHowRanksTalk) {
  set("NCCL_PROTO", "LL128");
  set("NCCL_SOCKET_IFNAME", "eth7");  // may differ
  set("NCCL_ALGO", "");               // counts as unset
  const auto environment = read();
  ASSERT_THAT(environment, IsOk());
  EXPECT_EQ(environment->version, 23003);
  EXPECT_THAT(environment->settings, ElementsAre(Pair("NCCL_PROTO", "LL128")));
}

TEST_F(NcclEnvironment, ReadsTheFilesAsNcclDoes) {
  write(".nccl.conf",
        "# NCCL_ALGO=Tree\n"
        "NCCL_PROTO=LL\r\n"
        "NCCL_PROTO=Simple\n"
        "NCCL_CUMEM_ENABLE =1\n"
        "no setting\n"
        " NCCL_BUFFSIZE=1\n"
        "NCCL_ALGO=Ring");
  const auto environment = read();
  ASSERT_THAT(environment, IsOk());
  EXPECT_THAT(environment->settings, ElementsAre(Pair("NCCL_ALGO", "Ring"), Pair("NCCL_PROTO", "LL")))
      << "the first line of a name, untrimmed names, no comment";
}

TEST_F(NcclEnvironment, TheEnvironmentWinsAndANamedFileStandsForTheHomeFolders) {
  write(".nccl.conf", "NCCL_CUMEM_ENABLE=0\n");
  const std::string named = write("named.conf", "NCCL_PROTO=LL\nNCCL_ALGO=Tree\n");
  set("NCCL_CONF_FILE", named.c_str());
  set("NCCL_PROTO", "Simple");
  set("NCCL_ALGO", "");  // hides the file's
  const auto environment = read();
  ASSERT_THAT(environment, IsOk());
  EXPECT_THAT(environment->settings, ElementsAre(Pair("NCCL_PROTO", "Simple")));
}

TEST_F(NcclEnvironment, NamesAllThatMustBeUnsetWithValuesAndPlaces) {
  const std::string file = write(".nccl.conf", "NCCL_MAX_CTAS=4\nNCCL_COMM_BLOCKING=1\n");
  set("CUDA_LAUNCH_BLOCKING", "1");
  set("NCCL_COMM_BLOCKING", "1");
  EXPECT_THAT(read(), StatusIs(StatusCode::kFailedPrecondition,
                               AllOf(HasSubstr("CUDA_LAUNCH_BLOCKING='1' in the environment ("),
                                     HasSubstr("NCCL_MAX_CTAS='4' in " + file + " ("),
                                     HasSubstr("NCCL_COMM_BLOCKING='1' in the environment, and " + file + " ("),
                                     HasSubstr("unset them there"), Not(HasSubstr("NCCL_COMM_ID")))));
}

TEST_F(NcclEnvironment, RefusesEachOfThem) {
  for (const char* const name : {"CUDA_LAUNCH_BLOCKING", "NCCL_COMM_ID", "NCCL_COMM_BLOCKING", "NCCL_MIN_CTAS",
                                 "NCCL_MAX_CTAS", "NCCL_CGA_CLUSTER_SIZE"}) {
    const test::Environment variable(name, "1");
    EXPECT_THAT(read(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(name)));
  }
}

TEST_F(NcclEnvironment, TakesWhatDoesNoHarm) {
  set("CUDA_LAUNCH_BLOCKING", "0");
  set("NCCL_COMM_BLOCKING", "0");
  set("NCCL_MAX_CTAS", "");
  EXPECT_THAT(read(), IsOk());
  set("NCCL_COMM_ID", "");  // NCCL takes even an empty value as an address
  EXPECT_THAT(read(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("NCCL_COMM_ID=''")));
}

TEST_F(NcclEnvironment, RefusesAFileThatIsTooLong) {
  const std::string file = write(".nccl.conf", std::string((1 << 20) + 1, '#'));
  EXPECT_THAT(read(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr(file)));
}

TEST(NcclCheckSame, NamesEachDifferenceWithBothValues) {
  const Environment here{22809, {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}, {"NCCL_P2P_DISABLE", "1"}}};
  const Environment there{22703, {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "Simple\n"}, {"NCCL_SHM_DISABLE", "1"}}};
  EXPECT_THAT(check_same(here, there, "the sender", "worker a"),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("NCCL is 2.28.9 at the sender and 2.27.3 at worker a"),
                             HasSubstr("NCCL_PROTO is 'LL' at the sender and 'Simple\\n' at worker a"),
                             HasSubstr("NCCL_P2P_DISABLE is '1' at the sender and unset at worker a"),
                             HasSubstr("NCCL_SHM_DISABLE is unset at the sender and '1' at worker a"),
                             HasSubstr("make them alike"), Not(HasSubstr("NCCL_ALGO")))));
  EXPECT_THAT(check_same(here, here, "the sender", "worker a"), IsOk());
}

TEST(NcclEnvironmentBytes, ComeBack) {
  const Environment environment{22809, {{"NCCL_ALGO", "Ring"}, {"NCCL_NET_PLUGIN", "\xff\x01 no UTF-8"}}};
  const auto parsed = parse_environment(to_bytes(environment));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(*parsed, environment);
  EXPECT_EQ(parse_environment(to_bytes(Environment{})).value(), Environment{});
}

std::string cbor(const nlohmann::json& json) {
  std::string bytes;
  nlohmann::json::to_cbor(json, bytes);
  return bytes;
}

TEST(NcclEnvironmentBytes, ThatAreNoneAreRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("NCCL"), cbor({}), cbor(1), cbor({{"version", 1}}),
        cbor({{"version", -1}, {"settings", nlohmann::json::object()}}),
        cbor({{"version", 1ull << 40}, {"settings", nlohmann::json::object()}}),
        cbor({{"version", "1"}, {"settings", nlohmann::json::object()}}), cbor({{"version", 1}, {"settings", "x"}}),
        cbor({{"version", 1}, {"settings", {{"NCCL_ALGO", 1}}}}), cbor({{"version", 1}, {"settings", {{"", "1"}}}}),
        cbor({{"version", 1}, {"settings", {{"A\n", "1"}}}}),
        cbor({{"version", 1}, {"settings", {{"A", std::string(1024, 'x')}}}}),
        std::string(kMaxEnvironmentBytes + 1, 'x')})
    EXPECT_THAT(parse_environment(bytes), StatusIs(StatusCode::kInvalidArgument, HasSubstr("nccl: an environment")))
        << bytes.size();
  nlohmann::json many = nlohmann::json::object();
  for (int i = 0; i < 257; ++i) many["A" + std::to_string(i)] = "1";
  EXPECT_THAT(parse_environment(cbor({{"version", 1}, {"settings", many}})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("256")));
}

TEST(NcclEnvironmentBytes, AreSafeWhateverTheyAre) {
  const std::string good = to_bytes({22809, {{"NCCL_ALGO", "Ring"}, {"NCCL_PROTO", "LL"}}});
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good.substr(0, random() % (good.size() + 1));
    for (unsigned changes = random() % 4; changes > 0 && !bytes.empty(); --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto parsed = parse_environment(bytes);
    if (!parsed.ok()) continue;
    EXPECT_EQ(parse_environment(to_bytes(*parsed)).value(), *parsed);
  }
}

}  // namespace
}  // namespace bascule::inline v0::nccl
