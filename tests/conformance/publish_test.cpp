// What a send promises while all processes are healthy.
#include "conformance/suite.h"

namespace bascule::test {
namespace {

TEST_P(Conformance, EveryWorkerServesEachVersion) {
  listen();
  const auto a = join("a"), b = join("b");
  wait_for_workers(2);
  for (Version version = 1; version <= 5; ++version) {
    const SendReport report = send_complete(2);
    EXPECT_EQ(report.version, version);
    EXPECT_GT(report.epoch, 0u);
    EXPECT_GT(report.bytes, 0u);
    EXPECT_TRUE(report.digest.has_value());
    EXPECT_NE(report.memory, "");
    EXPECT_EQ(report.warnings.size(), 0u);
    expect_newest({a.get(), b.get()});
  }
  EXPECT_EQ(a->report().flips, 5u);
  EXPECT_GE(a->report().pendings, 5) << "on_pending wakes an idle engine for every version";
}

TEST_P(Conformance, ReadersSeeWholeGenerationsWhileTheWriterNeverPauses) {
  listen();
  const auto a = join("a"), b = join("b"), c = join("c");
  wait_for_workers(3);
  for (int i = 0; i < 60; ++i) send_complete(3);
  expect_newest({a.get(), b.get(), c.get()});
  for (Worker* worker : {a.get(), b.get(), c.get()}) {
    EXPECT_EQ(worker->report().flips, 60u);
    EXPECT_GT(worker->report().checks, 0u);
  }
}

}  // namespace
}  // namespace bascule::test
