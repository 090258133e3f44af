#include <bascule/trainer_ref/http/page_server.h>

#include <gmock/gmock.h>

#include <atomic>

#include "support/status.h"
#include <bascule/trainer_ref/http_client.h>

namespace bascule::ref {
namespace {

using ::bascule::test::IsOk;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

class Pages : public ::testing::Test {
 protected:
  std::atomic<int> asked_ = 0;
  absl::StatusOr<std::unique_ptr<PageServer>> server_ = PageServer::listen(
      "metrics", "127.0.0.1:0", "a-program",
      {{"/health", [] { return PageServer::Page{.status = 503, .body = "{}"}; }},
       {"/metrics", [this] { return PageServer::Page{.body = std::to_string(++asked_), .type = "text/plain"}; }}});
  HttpClient client_;
};

TEST_F(Pages, AreWhatTheirFunctionsSayAtThatMoment) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  for (const char* said : {"1", "2"}) {
    const auto page = client_.get(url + "/metrics?module=x", kTimeout);
    ASSERT_THAT(page, IsOk());
    EXPECT_EQ(page->status, 200);
    EXPECT_EQ(page->body, said);
  }
  EXPECT_EQ(client_.get(url + "/health", kTimeout)->status, 503);
}

TEST_F(Pages, NothingElseIsAnswered) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  EXPECT_EQ(client_.get(url + "/", kTimeout)->status, 404);
  EXPECT_EQ(client_.post_json(url + "/metrics", "{}", kTimeout)->status, 405);
  EXPECT_EQ(asked_, 0);
}

TEST_F(Pages, EndWithTheServer) {
  ASSERT_THAT(server_, IsOk());
  const std::string url = (*server_)->url();
  ASSERT_THAT(client_.get(url + "/metrics", kTimeout), IsOk());  // and the connection is kept
  server_->reset();
  EXPECT_FALSE(client_.get(url + "/metrics", kTimeout).ok());
}

TEST_F(Pages, AnAddressThatIsNoneOrTakenNamesItsFlag) {
  ASSERT_THAT(server_, IsOk());
  const auto said = [](const std::string& address) {
    return std::string(PageServer::listen("metrics", address, "a-program", {}).status().message());
  };
  EXPECT_THAT(said("8000"), HasSubstr("--metrics=8000: expected HOST:PORT"));
  EXPECT_THAT(said("example.com:0"), HasSubstr("--metrics: 'example.com' is not an IP address"));
  EXPECT_THAT(said((*server_)->url().substr(7)), HasSubstr("--metrics=127.0.0.1:"));
}

}  // namespace
}  // namespace bascule::ref
