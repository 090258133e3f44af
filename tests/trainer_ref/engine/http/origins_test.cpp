#include <bascule/trainer_ref/engine/http/origins.h>

#include <gmock/gmock.h>

namespace bascule::ref {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Origins, WithoutAFlagAreAllWithAKeyAndElseOfThisMachine) {
  const AllowedOrigins open({}, /*has_key=*/true), local({}, /*has_key=*/false);
  for (const char* origin :
       {"http://localhost", "http://localhost:3000", "https://localhost:8443", "http://127.0.0.1:80",
        "http://127.1.2.3", "http://[::1]:5173", "http://app.localhost:1"}) {
    EXPECT_TRUE(local.allow(origin)) << origin;
    EXPECT_TRUE(open.allow(origin)) << origin;
  }
  for (const char* origin : {"https://example.com", "http://localhost.example.com", "http://127.0.0.1.example.com",
                             "http://192.168.0.2", "null", "file://", "app://localhost", "http://[::2]", "http://",
                             "http://[", "localhost", "http://notlocalhost"}) {
    EXPECT_FALSE(local.allow(origin)) << origin;
    EXPECT_TRUE(open.allow(origin)) << origin;
  }
}

TEST(Origins, AreTheFlags) {
  const AllowedOrigins one({"https://chat.example.com"}, /*has_key=*/true);
  EXPECT_TRUE(one.allow("https://chat.example.com"));
  for (const char* origin : {"http://chat.example.com", "https://chat.example.com:8443", "http://localhost"})
    EXPECT_FALSE(one.allow(origin)) << origin;
  EXPECT_TRUE(AllowedOrigins({"*"}, /*has_key=*/false).allow("https://example.com"));
}

TEST(Origins, AreReadAsAListOrAsVllmsJson) {
  EXPECT_THAT(*parse_origins({}), ElementsAre());
  EXPECT_THAT(*parse_origins({"*"}), ElementsAre("*"));
  EXPECT_THAT(*parse_origins({R"(["*"])"}), ElementsAre("*"));
  EXPECT_THAT(*parse_origins({R"(["https://a.example")", R"( "http://b.example:1"])"}),
              ElementsAre("https://a.example", "http://b.example:1"));
  EXPECT_THAT(*parse_origins({"https://a.example", "null"}), ElementsAre("https://a.example", "null"));
  EXPECT_THAT(*parse_origins({"https://a.example", "*"}), ElementsAre("*"));
  for (const char* bad :
       {"https://a.example/", "a.example", "https://*.example", "://a", "https://", "[1]", "[", "{}"}) {
    const auto refused = parse_origins({bad});
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("--allowed-origins=")) << bad;
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("https://chat.example.com")) << bad;
  }
}

}  // namespace
}  // namespace bascule::ref
