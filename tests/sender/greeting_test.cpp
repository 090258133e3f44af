// Workers with another protocol or digest, seen from the wire; the test is the worker.
#include "sender/wired.h"  // first: see there

#include <gmock/gmock.h>

namespace bascule::test {
namespace {

using testing::HasSubstr;

class Greeting : public Wired {};

TEST_F(Greeting, OfAnotherProtocolIsRefusedByNameForGood) {
  listen();
  const auto worker = connect();
  Hello hello = WireWorker::hello("a", 1);
  hello.protocol = kProtocol + 1;
  worker->say(hello);
  const Refused refused = worker->expect<Refused>();
  EXPECT_THAT(refused.why, HasSubstr(cat("speaks protocol ", kProtocol + 1, ", expected ", kProtocol)));
  EXPECT_TRUE(refused.final);
}

TEST_F(Greeting, WithAnotherDigestIsRefusedByNameForGood) {
  listen();
  const auto worker = connect();
  Hello hello = WireWorker::hello("a", 1);
  hello.digest_number = kDigestNumber - 1;
  worker->say(hello);
  const Refused refused = worker->expect<Refused>();
  EXPECT_THAT(refused.why, HasSubstr(cat("digest function ", kDigestNumber - 1, ", expected ", kDigestNumber)));
  EXPECT_TRUE(refused.final);
}

}  // namespace
}  // namespace bascule::test
