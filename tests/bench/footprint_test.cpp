#include <bascule/bench/footprint.h>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

namespace bascule::bench {
namespace {

constexpr std::string_view kSmaps =
    "00010000-00020000 r-xp 00000000 08:01 12  /usr/bin/program\n"
    "Rss:                  40 kB\n"
    "Pss:                  10 kB\n"
    "Private_Dirty:         0 kB\n"
    "7f0000000000-7f0000100000 r--s 00000000 00:01 77  /memfd:slot (deleted)\n"
    "Rss:                1024 kB\n"
    "Pss:                 512 kB\n"
    "Private_Dirty:         4 kB\n"
    "7f1000000000-7f1000001000 rw-p 00000000 00:00 0  [heap]\n"
    "Rss:                   8 kB\n"
    "Pss:                   8 kB\n"
    "Private_Dirty:         8 kB\n"
    "VmFlags: rd wr\n";

TEST(Footprint, SlotsAreToldFromTheRest) {
  const Footprint print = memory_of_smaps(
      kSmaps, [](std::uint64_t begin, std::uint64_t end) { return begin == 0x7f0000000000 && end == 0x7f0000100000; });
  EXPECT_EQ(print.slots_rss, 1024u << 10);
  EXPECT_EQ(print.rest_rss, 48u << 10);
  EXPECT_EQ(print.rest_pss, 18u << 10);
  EXPECT_EQ(print.rest_private_dirty, 8u << 10);
}

TEST(Footprint, FindsAMappingOfThisProcessByAnAddressInIt) {
  // So large that half of it exceeds any change by the process, sanitizers or the kernel's reclaim meanwhile.
  constexpr std::size_t kBytes = 64 << 20;
  void* const memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memset(memory, 1, kBytes);
  const Footprint without = footprint({}), with = footprint({static_cast<const std::byte*>(memory) + 4096});
  EXPECT_EQ(without.slots_rss, 0u);
  EXPECT_GE(with.slots_rss, kBytes / 2);
  EXPECT_LE(with.slots_rss, kBytes);
  EXPECT_LE(with.rest_rss + kBytes / 2, without.rest_rss);
  ::munmap(memory, kBytes);
}

TEST(Footprint, CountsDescriptors) {
  const Footprint before = footprint({});
  const int descriptor = ::dup(0);
  EXPECT_EQ(footprint({}).descriptors, before.descriptors + 1);
  ::close(descriptor);
  EXPECT_EQ(footprint({}).descriptors, before.descriptors);
}

}  // namespace
}  // namespace bascule::bench
