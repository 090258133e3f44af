#include <bascule/transport/endpoint.h>

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "support/environment.h"
#include <bascule/transport/scheme_option.h>
#include <bascule/transport/status.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::Environment;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

Endpoint parsed(const std::string& url) {
  absl::StatusOr<Endpoint> endpoint = Endpoint::parse(url);
  EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  return endpoint.ok() ? *endpoint : Endpoint();
}

// "" if the endpoint was accepted or refused with another code.
std::string refusal(const std::string& url, StatusCode code = StatusCode::kInvalidArgument) {
  const absl::Status status = Endpoint::parse(url).status();
  EXPECT_EQ(status.code(), code) << status;
  return status.code() == code ? std::string(message_of(status)) : "";
}

TEST(Endpoint, HasDefaults) {
  const Endpoint endpoint = parsed("shm:///run/user/1000/grpo");
  EXPECT_EQ(endpoint.scheme, "shm");
  EXPECT_EQ(endpoint.folder, "/run/user/1000/grpo");
  EXPECT_EQ(endpoint.control_socket(), "/run/user/1000/grpo/control.sock");
  EXPECT_EQ(endpoint.slots, 2);
  EXPECT_EQ(endpoint.wire_dtype, std::nullopt);
  EXPECT_EQ(endpoint.digest, DigestMode::kOn);
  EXPECT_EQ(endpoint.timeout, absl::Seconds(30));
}

TEST(Endpoint, ReadsEveryOption) {
  const Endpoint endpoint = parsed(
      "cuda-ipc:///x?slots=2&wire_dtype=bf16&digest=always&timeout=2m&flip_timeout=1.5s&heartbeat=200ms"
      "&suspect_after=900ms&loan_timeout=7s&load_timeout=8s&commit=together&apply=background");
  EXPECT_EQ(endpoint.scheme, "cuda-ipc");
  EXPECT_EQ(endpoint.wire_dtype, DType::kBF16);
  EXPECT_EQ(endpoint.digest, DigestMode::kAlways);
  EXPECT_EQ(endpoint.apply, Apply::kBackground);
  EXPECT_EQ(endpoint.timeout, absl::Minutes(2));
  EXPECT_EQ(endpoint.flip_timeout, absl::Milliseconds(1500));
  EXPECT_EQ(endpoint.heartbeat, absl::Milliseconds(200));
  EXPECT_EQ(endpoint.suspect_after, absl::Milliseconds(900));
  EXPECT_EQ(endpoint.loan_timeout, absl::Seconds(7));
  EXPECT_EQ(endpoint.load_timeout, absl::Seconds(8));
}

TEST(Endpoint, ReadsEveryWireDtypeAndDigestMode) {
  EXPECT_EQ(parsed("shm:///x?wire_dtype=f32").wire_dtype, DType::kF32);
  EXPECT_EQ(parsed("shm:///x?wire_dtype=f16").wire_dtype, DType::kF16);
  EXPECT_EQ(parsed("shm:///x?digest=off").digest, DigestMode::kOff);
  EXPECT_EQ(parsed("shm:///x?digest=on").digest, DigestMode::kOn);
  EXPECT_EQ(parsed("shm:///x?apply=commit").apply, Apply::kCommit);
}

TEST(Endpoint, TwoSpellingsOfAFolderAreOne) {
  EXPECT_EQ(parsed("shm:///a/b/").folder, "/a/b");
  EXPECT_EQ(parsed("shm:///a//./b?").folder, "/a/b");
}

TEST(Endpoint, DecodesPercentSigns) {
  EXPECT_EQ(parsed("shm:///a%20b/%C3%A9%3f?digest=%6Fn").folder, "/a b/\xC3\xA9?");
  EXPECT_THAT(refusal("shm:///a%2"), HasSubstr("\"%2\""));
  EXPECT_THAT(refusal("shm:///a%zz"), HasSubstr("\"%zz\""));
  EXPECT_THAT(refusal("shm:///a%00b"), HasSubstr("zero byte"));
  EXPECT_THAT(refusal("shm:///a?digest=%g1"), HasSubstr("digest: \"%g1\""));
}

TEST(Endpoint, SaysHowOneIsWritten) {
  EXPECT_THAT(refusal(""), HasSubstr("expected scheme:///folder?options or scheme://host:port"));
  EXPECT_THAT(refusal("shm:/x"), HasSubstr("expected scheme:///folder?options or scheme://host:port"));
  EXPECT_THAT(refusal("/run/x"), HasSubstr("did you mean scheme:///run/x?"));
  EXPECT_THAT(refusal("://x"), HasSubstr("the scheme \"\""));
  EXPECT_THAT(refusal("SHM:///x"), HasSubstr("lower-case"));
  EXPECT_THAT(refusal("shm://"), HasSubstr("names no folder"));
  EXPECT_THAT(refusal("shm:///"), HasSubstr("the root"));
  EXPECT_THAT(refusal("shm:///x#y"), HasSubstr("%23"));
}

TEST(Endpoint, SpellsARelativeFolderFromTheRoot) {
  EXPECT_THAT(refusal("shm://grpo"), HasSubstr("write shm:///grpo for a folder"));
  EXPECT_THAT(refusal("shm://~/grpo"), HasSubstr("shm://$HOME/grpo"));
  const std::string here = std::filesystem::current_path() / "grpo";
  EXPECT_THAT(refusal("shm://./grpo"), HasSubstr(cat("write it from the root, as shm://", here)));
}

TEST(Endpoint, ReadsAHostAndAPort) {
  const Endpoint name = parsed("nccl://node-1.cluster:29500?digest=off");
  EXPECT_TRUE(name.over_tcp());
  EXPECT_EQ(name.host, "node-1.cluster");
  EXPECT_EQ(name.port, 29500);
  EXPECT_EQ(name.place(), "node-1.cluster:29500");
  EXPECT_EQ(name.digest, DigestMode::kOff);
  const Endpoint ipv4 = parsed("nccl://127.0.0.1:1");
  EXPECT_EQ(ipv4.host, "127.0.0.1");
  const Endpoint ipv6 = parsed("nccl://[fe80::1]:65535");
  EXPECT_EQ(ipv6.host, "fe80::1");
  EXPECT_EQ(ipv6.port, 65535);
  EXPECT_EQ(ipv6.place(), "[fe80::1]:65535");
  EXPECT_FALSE(parsed("shm:///x").over_tcp());
  EXPECT_EQ(parsed("shm:///x").place(), "/x");
}

TEST(Endpoint, RefusesWhatIsNoHostAndPort) {
  EXPECT_THAT(refusal("nccl://node1:0"), HasSubstr("from 1 to 65535, found \"0\""));
  EXPECT_THAT(refusal("nccl://node1:65536"), HasSubstr("from 1 to 65535"));
  EXPECT_THAT(refusal("nccl://node1:"), HasSubstr("found \"\""));
  EXPECT_THAT(refusal("nccl://:80"), HasSubstr("\"\" is neither a host's name nor an IPv4 address"));
  EXPECT_THAT(refusal("nccl://no de:80"), HasSubstr("neither a host's name"));
  EXPECT_THAT(refusal("nccl://::1:80"), HasSubstr("in brackets, as [::1]:29500"));
  EXPECT_THAT(refusal("nccl://[::1]"), HasSubstr("in brackets and a port"));
  EXPECT_THAT(refusal("nccl://[node1]:80"), HasSubstr("\"node1\" is not an IPv6 address"));
  EXPECT_THAT(refusal(std::string("nccl://[::1\0x]:80", 17)), HasSubstr("is not an IPv6 address"));
  EXPECT_THAT(refusal("shm://node1:1/grpo"),
              AllOf(HasSubstr("a host and a folder"), HasSubstr("shm://node1:1 or shm:///grpo")));
  EXPECT_THAT(refusal("shm://node1/grpo"), HasSubstr("shm:///node1/grpo for a folder"));
}

TEST(Endpoint, KeepsTheStateOfAHostWhereTheUserKeepsState) {
  const Environment state("XDG_STATE_HOME", "/var/state"), home("HOME", "/home/me");
  EXPECT_EQ(parsed("nccl://node1:80").folder, "/var/state/bascule/node1_80");
  EXPECT_EQ(parsed("nccl://[::1]:80").folder, "/var/state/bascule/::1_80");
  EXPECT_EQ(parsed("nccl://node1:80?state=/x/y/").folder, "/x/y");
  {
    const Environment unset("XDG_STATE_HOME", nullptr);
    EXPECT_EQ(parsed("nccl://node1:80").folder, "/home/me/.local/state/bascule/node1_80");
    const Environment homeless("HOME", nullptr);
    EXPECT_EQ(parsed("nccl://node1:80").folder, "");
  }
  const Environment relative("XDG_STATE_HOME", "state");
  EXPECT_EQ(parsed("nccl://node1:80").folder, "/home/me/.local/state/bascule/node1_80");
}

TEST(Endpoint, TakesStateAndTokenFileForAHostAlone) {
  EXPECT_EQ(parsed("nccl://node1:80?token_file=/home/me/a%20token").token_file, "/home/me/a token");
  EXPECT_THAT(refusal("shm:///x?state=/y"), HasSubstr("state: it is for an endpoint with a host and port"));
  EXPECT_THAT(refusal("shm:///x?token_file=/y"), HasSubstr("token_file: it is for an endpoint with a host and port"));
  EXPECT_THAT(refusal("nccl://node1:80?state=y"), HasSubstr("state: expected a path from the root, found \"y\""));
}

TEST(Endpoint, ListensBesideAFolder) {
  const Endpoint both = parsed("auto:///x?listen=[::1]:29500&token_file=/y");
  EXPECT_FALSE(both.over_tcp());
  ASSERT_TRUE(both.listen);
  EXPECT_EQ(both.listen->text(), "[::1]:29500");
  const std::optional<Endpoint> beside = both.beside();
  ASSERT_TRUE(beside);
  EXPECT_TRUE(beside->over_tcp());
  EXPECT_EQ(beside->place(), "[::1]:29500");
  EXPECT_EQ(beside->folder, "/x") << "there is one state";
  EXPECT_EQ(beside->token_file, "/y");
  EXPECT_FALSE(beside->beside());
  EXPECT_FALSE(parsed("auto:///x").beside());
  EXPECT_EQ(parsed("auto:///x?token_file=/y&listen=node1:80").token_file, "/y") << "in either order";

  EXPECT_THAT(refusal("auto:///x?listen=node1"), HasSubstr("listen: expected a host and a port, as node1:29500"));
  EXPECT_THAT(refusal("auto:///x?listen=node1:0"), HasSubstr("listen: expected a port from 1 to 65535"));
  EXPECT_THAT(refusal("auto://node1:80?listen=node2:80"), HasSubstr("this one is at node1:80 alone"));
}

TEST(Endpoint, RefusesAFolderWhoseFilesWouldHaveTooLongPaths) {
  const std::string longest = "/" + std::string(3839, 'x');
  EXPECT_EQ(parsed("shm://" + longest).folder, longest);
  EXPECT_THAT(refusal("shm://" + longest + "y"), AllOf(HasSubstr("3841 bytes"), HasSubstr("limit is 3840")));
}

TEST(Endpoint, LeavesTheOptionsThatAreNotCommonToTheScheme) {
  const Endpoint endpoint = parsed("shm:///x?colour=dark%20red&slots=3&size=2");
  EXPECT_EQ(endpoint.slots, 3);
  EXPECT_THAT(endpoint.scheme_options, ElementsAre(Pair("colour", "dark red"), Pair("size", "2")));
  EXPECT_EQ(*option_value(endpoint, "size"), "2");
  EXPECT_EQ(option_value(endpoint, "slots"), nullptr) << "a common one";
  EXPECT_THAT(refusal("shm:///x?colour=red&colour=red"), HasSubstr("option colour is given twice"));
  EXPECT_THAT(refusal("shm:///x?colour"), HasSubstr("option colour has no value"));
}

absl::StatusOr<int> parse_size(std::string_view value) {
  if (value != "1" && value != "2") return invalid_argument("expected 1 or 2, found \"", value, "\"");
  return value == "1" ? 1 : 2;
}
constexpr OptionOf<int> kSize = {.name = "size", .values = "N", .help = "", .needs = "", .parse = parse_size};

TEST(SchemeOptions, AreCheckedByTheSchemesTable) {
  const std::vector<SchemeOption> table = {kSize};
  const auto refused = [&](const std::string& url) {
    return std::string(check_scheme_options(parsed(url), table).message());
  };
  EXPECT_EQ(kSize.in(parsed("x:///x?size=2")), 2);
  EXPECT_EQ(kSize.in(parsed("x:///x")), std::nullopt);
  EXPECT_EQ(refused("x:///x?size=2&slots=3"), "");
  EXPECT_EQ(refused("x:///x?size=3"), "size: expected 1 or 2, found \"3\"");
  EXPECT_EQ(refused("x:///x?timout=3s"), "unknown option \"timout\"; did you mean \"timeout\"?");
  EXPECT_EQ(refused("x:///x?sise=1"), "unknown option \"sise\"; did you mean \"size\"?");
  EXPECT_THAT(refused("x:///x?colour=red"), AllOf(HasSubstr("the options are slots, wire_dtype"), HasSubstr(", size")));
}

TEST(Endpoint, RefusesOptionsThatAreNone) {
  EXPECT_EQ(Endpoint::parse("shm:///x?spares=0")->spares, 0);
  EXPECT_EQ(Endpoint::parse("shm:///x")->spares, std::nullopt);
  EXPECT_THAT(refusal("shm:///x?spares=-1"), HasSubstr("a number of spare slots, 0 to 48"));
  EXPECT_THAT(refusal("shm:///x?slots"), HasSubstr("option slots has no value"));
  EXPECT_THAT(refusal("shm:///x?slots=2&&digest=on"), HasSubstr("without a name"));
  EXPECT_THAT(refusal("shm:///x?slots=2&digest=on&slots=2"), HasSubstr("option slots is given twice"));
}

TEST(Endpoint, RefusesValuesOutOfRange) {
  for (const char* const number : {"+3", " 3", "3 ", "0x3", "3.0", "-3", "%2B3"}) {
    EXPECT_THAT(refusal(cat("shm:///x?slots=", number)), HasSubstr("slots: expected a number"));
    EXPECT_THAT(refusal(cat("shm:///x?spares=", number)), HasSubstr("spares: expected a number"));
    EXPECT_THAT(refusal(cat("shm:///x?listen=node1:", number)), HasSubstr("expected a port"));
  }
  EXPECT_THAT(refusal("shm:///x?timeout=+3s"), HasSubstr("expected a duration"));
  EXPECT_THAT(refusal("shm:///x?slots=0"), HasSubstr("slots: expected a number"));
  EXPECT_THAT(refusal("shm:///x?slots=13"), HasSubstr("expected 12 slots at most, found 13"));
  EXPECT_THAT(refusal("shm:///x?commit=all"), HasSubstr("one of together, each, found \"all\""));
  EXPECT_THAT(refusal("shm:///x?slots=two"), HasSubstr("found \"two\""));
  EXPECT_THAT(refusal("shm:///x?wire_dtype=f64"), HasSubstr("one of f32, bf16, f16, found \"f64\""));
  EXPECT_THAT(refusal("shm:///x?digest=yes"), HasSubstr("one of off, on, always"));
  EXPECT_THAT(refusal("shm:///x?apply=later"), HasSubstr("one of commit, background, found \"later\""));
  EXPECT_THAT(refusal("shm:///x?timeout=30"), HasSubstr("as 30s"));
  EXPECT_THAT(refusal("shm:///x?timeout=0s"), HasSubstr("above zero"));
  EXPECT_THAT(refusal("shm:///x?timeout=-1s"), HasSubstr("above zero"));
  EXPECT_THAT(refusal("shm:///x?timeout=inf"), HasSubstr("finite"));
  EXPECT_THAT(refusal("shm:///x?heartbeat=1us"), HasSubstr("1ms or more"));
  EXPECT_THAT(refusal("shm:///x?heartbeat=5s"), HasSubstr("shorter than suspect_after (5s)"));
}

}  // namespace
}  // namespace bascule
