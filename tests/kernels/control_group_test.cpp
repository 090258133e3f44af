// Control groups as files in a folder, as the kernel shows them on several kinds of machines.
#include <bascule/kernels/control_group.h>

#include <gmock/gmock.h>

#include <fstream>

#include "support/temp_folder.h"

namespace bascule::inline v0::kernels {
namespace {

using testing::Eq;
using testing::Optional;

class ControlGroup : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = folder_.path().string() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  ControlGroupLimits limits() const { return control_group_limits(folder_.path().string()); }

  test::TempFolder folder_;
};

TEST_F(ControlGroup, NothingToReadLimitsNothing) {
  EXPECT_EQ(limits().cores, std::nullopt);
  EXPECT_EQ(limits().memory_left_bytes, std::nullopt);
}

TEST_F(ControlGroup, Version2IsLimitedByItsGroupAndByThoseAroundIt) {
  write("/proc/self/mountinfo", "26 23 0:22 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n");
  write("/proc/self/cgroup", "0::/outer.slice/inner.scope\n");
  write("/sys/fs/cgroup/outer.slice/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/outer.slice/inner.scope/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/outer.slice/memory.max", "max\n");
  write("/sys/fs/cgroup/outer.slice/memory.current", "999\n");
  write("/sys/fs/cgroup/outer.slice/inner.scope/memory.max", "1000\n");
  write("/sys/fs/cgroup/outer.slice/inner.scope/memory.current", "700\n");
  EXPECT_THAT(limits().cores, Optional(Eq(1.5)));
  EXPECT_THAT(limits().memory_left_bytes, Optional(Eq(300u)));

  write("/sys/fs/cgroup/outer.slice/inner.scope/memory.stat", "anon 500\ninactive_file 200\n");
  EXPECT_THAT(limits().memory_left_bytes, Optional(Eq(500u))) << "file caches can be freed";
  write("/sys/fs/cgroup/outer.slice/memory.max", "1100\n");
  EXPECT_THAT(limits().memory_left_bytes, Optional(Eq(101u))) << "the tightest group's";
}

TEST_F(ControlGroup, Version1HasAFolderForEachController) {
  write("/proc/self/mountinfo",
        "29 28 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        "30 28 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
        "31 28 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  write("/proc/self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job/step\n0::/\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/job/step/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000\n");
  write("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1500\n");
  write("/sys/fs/cgroup/memory/job/memory.stat", "total_inactive_file 100\n");
  EXPECT_THAT(limits().cores, Optional(Eq(2.5)));
  EXPECT_THAT(limits().memory_left_bytes, Optional(Eq(600u)));
}

TEST_F(ControlGroup, AContainerThatShowsItsOwnGroupAlone) {
  write("/proc/self/mountinfo", "40 39 0:30 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  write("/proc/self/cgroup", "5:memory:/docker/abc\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2500\n");
  EXPECT_THAT(limits().memory_left_bytes, Optional(Eq(0u)));
}

TEST_F(ControlGroup, WhatMakesNoSenseLimitsNothing) {
  write("/proc/self/mountinfo",
        "nonsense\n\n26 23 0:22 / /sys/fs/cgroup rw - cgroup2\n27 1 0:2 / /g rw - cgroup2 g rw\n");
  write("/proc/self/cgroup", "nonsense\n0::/../elsewhere\n");
  write("/g/cpu.max", "100000 0\n");
  write("/g/memory.max", "-5\n");
  EXPECT_EQ(limits().cores, std::nullopt);
  EXPECT_EQ(limits().memory_left_bytes, std::nullopt);
}

TEST(UsableCores, IsOneOrMore) { EXPECT_GE(usable_cores(), 1); }

}  // namespace
}  // namespace bascule::inline v0::kernels
