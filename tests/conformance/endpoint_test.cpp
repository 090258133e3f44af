// Endpoints that both ends refuse, with what to do about it.
#include <sys/stat.h>

#include <filesystem>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

TEST_P(Conformance, AFolderThatOthersCanEnterIsRefusedWithTheCommandThatMendsIt) {
  const std::filesystem::path folder = folder_.path() / "endpoint";
  std::filesystem::create_directory(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  const auto refused = AllOf(HasSubstr("mode 0755"), HasSubstr(cat("chmod 700 ", folder.string())));
  EXPECT_THAT(try_listen(), StatusIs(StatusCode::kPermissionDenied, refused));
  const auto a = start("a");
  EXPECT_NE(a->wait_ready(absl::ZeroDuration()), "");  // makes it look for its sender
  if (GetParam().place == Place::kFolder) a->wait_until_error(refused);

  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  a->tell("run");
  listen();
  wait_for_workers(1);
  send_complete(1);
}

TEST_P(Conformance, AnUnknownSchemeOrOptionIsRefusedWithTheNearestKnown) {
  if (given_scheme() != nullptr) GTEST_SKIP() << "the registry does not know this scheme";
  const std::string near = cat(GetParam().scheme, "x", endpoint().substr(GetParam().scheme.size()));
  for (const auto& [url, text] : {std::pair<std::string, std::string>{near, GetParam().scheme},
                                  {endpoint("wire_dtpye=bf16"), "did you mean \"wire_dtype\"?"},
                                  {endpoint("digest=sometimes"), "expected one of off, on, always"}}) {
    SCOPED_TRACE(url);
    const absl::StatusOr<Sender> sender = Sender::listen({.endpoint = url});
    const absl::StatusOr<Receiver> receiver = Receiver::connect({.endpoint = url, .worker = "a"});
    EXPECT_FALSE(sender.ok());
    EXPECT_THAT(std::string(sender.status().message()), HasSubstr(text));
    EXPECT_THAT(std::string(receiver.status().message()), HasSubstr(text));
  }
}

TEST_P(Conformance, AWorkerNeedsAName) {
  EXPECT_THAT(Receiver::connect({.endpoint = endpoint(), .scheme = given_scheme()}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("name")));
  EXPECT_THAT(Receiver::connect({.endpoint = endpoint(), .worker = "\xFF", .scheme = given_scheme()}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

}  // namespace
}  // namespace bascule::test
