#include <bascule/transport/posix/mapping.h>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/unique_fd.h>

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

constexpr std::uint64_t kMappedBytes = 3 * 4096;

UniqueFd file() {
  UniqueFd fd(::memfd_create("bascule-test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(fd.get(), kMappedBytes), 0);
  return fd;
}

TEST(Mapping, SharesItsBytesWithEveryOtherMapping) {
  const UniqueFd fd = file();
  auto writer = Mapping::map(fd.get(), kMappedBytes, Access::kReadWrite);
  const auto reader = Mapping::map(fd.get(), kMappedBytes, Access::kReadOnly);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(reader, IsOk());
  ASSERT_EQ(writer->writable().size(), kMappedBytes);
  ASSERT_EQ(reader->bytes().size(), kMappedBytes);
  writer->writable()[kMappedBytes - 1] = std::byte{42};
  EXPECT_EQ(reader->bytes()[kMappedBytes - 1], std::byte{42});
}

TEST(Mapping, KeepsItsWritesToItselfOnceAsked) {
  const UniqueFd fd = file();
  auto writer = Mapping::map(fd.get(), kMappedBytes, Access::kReadWrite);
  const auto reader = Mapping::map(fd.get(), kMappedBytes, Access::kReadOnly);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT(reader, IsOk());
  std::byte* const at = writer->writable().data();
  at[1] = at[5000] = std::byte{1};
  ASSERT_THAT(writer->keep_writes(fd.get()), IsOk());
  EXPECT_EQ(writer->writable().data(), at);
  EXPECT_EQ(at[1], std::byte{1}) << "what was written before stays, for both";
  at[1] = std::byte{2};
  EXPECT_EQ(at[1], std::byte{2});
  EXPECT_EQ(reader->bytes()[1], std::byte{1});
  EXPECT_EQ(reader->bytes()[5000], std::byte{1});
  EXPECT_THAT(writer->keep_writes(-1), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("map")));
  EXPECT_EQ(at[1], std::byte{2}) << "as it was";
  EXPECT_THAT(Mapping().keep_writes(-1), IsOk());
}

TEST(Mapping, OutlivesItsDescriptor) {
  UniqueFd fd = file();
  auto mapping = Mapping::map(fd.get(), kMappedBytes, Access::kReadWrite);
  ASSERT_THAT(mapping, IsOk());
  fd.reset();
  mapping->writable()[0] = std::byte{1};
  EXPECT_EQ(mapping->bytes()[0], std::byte{1});
}

TEST(Mapping, HasEveryPagePresent) {
  const UniqueFd fd = file();
  const auto mapping = Mapping::map(fd.get(), kMappedBytes, Access::kReadOnly);
  ASSERT_THAT(mapping, IsOk());
  unsigned char present[3] = {};
  ASSERT_EQ(::mincore(const_cast<std::byte*>(mapping->bytes().data()), kMappedBytes, present), 0);
  EXPECT_THAT(present, testing::Each(testing::Truly([](unsigned char page) { return (page & 1) != 0; })));
}

TEST(Mapping, BringsInItsPagesLaterWhereAskedTo) {
  const test::TempFolder folder;
  const auto path = folder.path() / "file";
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(fd.get(), kMappedBytes), 0);
  auto mapping = Mapping::map(fd.get(), kMappedBytes, Access::kReadOnly, Pages::kLater);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_FALSE(mapping->in_memory());
  EXPECT_THAT(mapping->populate(), IsOk());
  EXPECT_TRUE(mapping->in_memory());
}

// If a touch would be a SIGBUS.
TEST(Mapping, SaysThatAFileIsShorterThanItsMapping) {
  const UniqueFd fd = file();
  EXPECT_THAT(Mapping::map(fd.get(), 2 * kMappedBytes, Access::kReadOnly),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bring 24576 bytes of a mapping into memory: ")));
}

TEST(Mapping, MovesAndUnmapsWithItsOwner) {
  const UniqueFd fd = file();
  auto first = Mapping::map(fd.get(), kMappedBytes, Access::kReadOnly);
  ASSERT_THAT(first, IsOk());
  const std::byte* address = first->bytes().data();
  {
    const Mapping second = *std::move(first);
    EXPECT_EQ(second.bytes().data(), address);
  }
  unsigned char present[3];
  EXPECT_EQ(::mincore(const_cast<std::byte*>(address), kMappedBytes, present), -1) << "still mapped";
}

TEST(Mapping, OfNothingIsEmpty) {
  auto mapping = Mapping::map(-1, 0, Access::kReadWrite);
  ASSERT_THAT(mapping, IsOk());
  EXPECT_TRUE(mapping->bytes().empty());
  EXPECT_TRUE(mapping->writable().empty());
  EXPECT_TRUE(Mapping().bytes().empty());
}

TEST(Mapping, SaysWhatCannotBeMapped) {
  EXPECT_THAT(Mapping::map(-1, kMappedBytes, Access::kReadOnly), testing::Not(IsOk()));
  const UniqueFd fd = file();
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const UniqueFd read_only(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(Mapping::map(read_only.get(), kMappedBytes, Access::kReadOnly), IsOk());
  EXPECT_THAT(Mapping::map(read_only.get(), kMappedBytes, Access::kReadWrite),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("map 12288 bytes of shared memory: ")));
}

}  // namespace
}  // namespace bascule
