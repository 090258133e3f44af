#include <bascule/schemes/memmap/manifest.h>

#include <gmock/gmock.h>

#include <fstream>

#include <nlohmann/json.hpp>

#include "schemes/memmap/trainer.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>

namespace bascule::inline v0::memmap {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

WholeVersion version(Epoch epoch, std::uint32_t index, Version number, std::optional<Digest> digest = {}) {
  return {.slot = {epoch, index},
          .inode = 100 + index,
          .bytes = 5000,
          .stamp = {.epoch = epoch, .version = number, .digest = digest}};
}
auto is(const WholeVersion& expected) {
  return testing::AllOf(
      testing::Field(&WholeVersion::slot, expected.slot), testing::Field(&WholeVersion::inode, expected.inode),
      testing::Field(&WholeVersion::bytes, expected.bytes), testing::Field(&WholeVersion::stamp, expected.stamp));
}

Folder opened(const test::TempFolder& folder) { return Folder::open(folder.path()).value(); }

TEST(Manifest, ListsVersionsTheNewestFirst) {
  const test::TempFolder folder;
  const WholeVersion old = version(3, 1, 8, Digest{.low = 1, .high = 2}), newer = version(4, 0, 9),
                     newest = version(4, 1, 10, Digest{.low = 3, .high = 4});
  ASSERT_THAT(replace_file(folder.path() / kManifest, manifest_text({newer, old, newest})), IsOk());
  const auto read = read_manifest(opened(folder));
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(*read, ElementsAre(is(newest), is(newer), is(old)));
}

// The text that people and other programs read.
TEST(Manifest, IsPlainJson) {
  const auto json = nlohmann::json::parse(manifest_text({version(3, 1, 8, Digest{.low = 1, .high = 2})}));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"format": "bascule manifest 1", "digest_number": 2, "versions": [
      {"version": 8, "epoch": 3, "slot": 1, "file": "slot-3-1.safetensors", "inode": 101, "bytes": 5000,
       "digest": "00000000000000020000000000000001"}]})"));
}

TEST(Manifest, SaysWhatDoesNotRead) {
  const test::TempFolder folder;
  EXPECT_THAT(read_manifest(opened(folder)), StatusIs(StatusCode::kNotFound, HasSubstr("manifest.json")));
  const std::string good = manifest_text({version(3, 1, 8, Digest{.low = 1, .high = 2})});
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"version\"", "\"vrsion\""},
                                 {"manifest 1", "manifest 2"},
                                 {"slot-3-1", "../slot-3-1"},
                                 {"\"epoch\": 3", "\"epoch\": -3"},
                                 {"\"digest_number\": 2", "\"digest_number\": \"2\""},
                                 {"0000", "xxxx"},
                                 {"[", "{"},
                                 {good, ""},
                                 {good, "[]"},
                                 {good, good.substr(0, good.size() / 2)}}) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    ASSERT_THAT(replace_file(folder.path() / kManifest, text), IsOk());
    EXPECT_THAT(read_manifest(opened(folder)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("manifest.json")))
        << to;
  }
}

TEST(WholeVersions, AreThoseOfTheManifestWhereItReads) {
  const test::TempFolder folder;
  test::MemmapTrainer trainer(folder.path(), 5);
  trainer.send(0, 1);
  trainer.send(1, 2);
  ASSERT_THAT(trainer.write(0, 3), IsOk());  // sealed, and not decided
  const auto whole = whole_versions(opened(folder)).value();
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0].stamp.version, 2u);
}

TEST(WholeVersions, AreThoseThatTheFilesClaimWhereItDoesNot) {
  const test::TempFolder folder;
  test::MemmapTrainer trainer(folder.path(), 5);
  trainer.send(0, 1);
  trainer.send(1, 2);
  const auto listed = whole_versions(opened(folder)).value();
  for (const char* text : {"", "{\"format\": \"basc"}) {
    ASSERT_THAT(replace_file(folder.path() / kManifest, text), IsOk());
    std::ofstream(folder.path() / "slot-5-7.safetensors") << "no safetensors file";
    EXPECT_THAT(whole_versions(opened(folder)).value(), ElementsAre(is(listed[0]), is(listed[1])));
  }
  const std::atomic<std::uint64_t> nothing_done{0};
  ASSERT_THAT(trainer.kept().begin({5, 0}, nothing_done, Deadline(test::patience())), IsOk());
  ASSERT_THAT(replace_file(folder.path() / kManifest, ""), IsOk());
  EXPECT_THAT(whole_versions(opened(folder)).value(), ElementsAre(is(listed[0])))
      << "one that is being written claims nothing";
}

}  // namespace
}  // namespace bascule::inline v0::memmap
