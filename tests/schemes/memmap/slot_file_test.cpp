#include <bascule/schemes/memmap/slot_file.h>

#include <fcntl.h>
#include <gmock/gmock.h>

#include <fstream>

#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>
#include <bascule/transport/safetensors.h>
#include <bascule/transport/status.h>

namespace bascule::inline v0::memmap {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::HasSubstr;

Layout tied_layout() {
  return Layout::arrange(
             {{"b \"quoted\"", DType::kBF16, {3}}, {"a", DType::kF32, {32}}, {"empty", DType::kI64, {0, 2}}},
             {{"z", "a"}, {"head", "b \"quoted\""}})
      .value();
}
std::string file_of(const Layout& layout, Epoch epoch = 7) {
  return make_header(layout, epoch).value() + std::string(layout.bytes(), 'x');
}
absl::StatusOr<ParsedFile> parse(const std::string& file) {
  return parse_slot_file(std::as_bytes(std::span(file)), "file");
}

TEST(SlotFile, IsNamedByEpochAndIndex) {
  EXPECT_EQ(slot_file_name({17, 3}), "slot-17-3.safetensors");
  EXPECT_EQ(slot_of_file("slot-17-3.safetensors"), (SlotId{17, 3}));
  for (const char* other : {"", "slot", "slot-17-3", "slot-17-3.safetensors.new", "slot-017-3.safetensors",
                            "slot--3.safetensors", "slot-17.safetensors", "slot-17-99999999999.safetensors",
                            "model.safetensors", "slot.-1-2", "../slot-17-3.safetensors"})
    EXPECT_EQ(slot_of_file(other), std::nullopt) << other;
}

TEST(SlotFile, IsASafetensorsFileWhoseDataBeginsOnAPage) {
  const Layout layout = tied_layout();
  const std::string file = file_of(layout);
  const auto header = parse_safetensors(std::as_bytes(std::span(file)), "file");
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->data_offset % 4096, 0u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->metadata.at("z"), "a") << "a tied tensor stands among the metadata";
  ASSERT_EQ(header->entries.size(), layout.tensors().size()) << "and not among the tensors";
  for (const Placement& tensor : layout.tensors()) {
    const SafetensorsHeader::Entry* entry = header->find(tensor.spec.name);
    ASSERT_NE(entry, nullptr) << tensor.spec.name;
    EXPECT_EQ(entry->spec, tensor.spec);
    EXPECT_EQ(entry->offset, header->data_offset + tensor.offset);
  }
}

TEST(SlotFile, GivesBackItsLayoutWithTiedTensors) {
  const Layout layout = tied_layout();
  const auto parsed = parse(file_of(layout));
  ASSERT_THAT(parsed, IsOk());
  EXPECT_TRUE(std::ranges::equal(parsed->layout.tensors(), layout.tensors()));
  EXPECT_EQ(parsed->layout.find("z"), parsed->layout.find("a"));
  EXPECT_EQ(parsed->layout.find("head"), parsed->layout.find("b \"quoted\""));
  EXPECT_EQ(parsed->layout.aliases().size(), 2u);
  EXPECT_EQ(parsed->shape.data_bytes, layout.bytes());
}

TEST(SlotFile, IsStampedInPlace) {
  const test::TempFolder folder;
  const Layout layout = tied_layout();
  const std::string before = file_of(layout);
  ASSERT_THAT(replace_file(folder.path() / "file", before), IsOk());
  const UniqueFd fd(::open((folder.path() / "file").c_str(), O_RDWR | O_CLOEXEC));
  const FileShape shape = parse(before)->shape;
  EXPECT_EQ(read_stamp(fd.get(), shape).value(), (Stamp{.epoch = 7, .version = 0, .digest = std::nullopt}));

  const Version most = ~Version{0};
  for (const Stamp& stamp : {Stamp{.epoch = 7, .version = 12, .digest = Digest{.low = 1, .high = 2}},
                             Stamp{.epoch = 7, .version = most, .digest = Digest{.low = most, .high = most}},
                             Stamp{.epoch = 7, .version = 3, .digest = std::nullopt}}) {
    ASSERT_THAT(write_stamp(fd.get(), shape, stamp), IsOk());
    EXPECT_EQ(read_stamp(fd.get(), shape).value(), stamp);
    const auto after = read_file(folder.path() / "file", 1 << 20);
    ASSERT_THAT(after, IsOk());
    EXPECT_EQ(after->size(), before.size());
    const auto header = parse_safetensors(std::as_bytes(std::span(*after)), "file");
    ASSERT_THAT(header, IsOk()) << "still a valid file";
    EXPECT_EQ(std::stoull(header->metadata.at("bascule.version")), stamp.version);
    EXPECT_EQ(header->metadata.at("bascule.digest_number"), "2");
    EXPECT_EQ(header->metadata.at("bascule.digest"),
              stamp.digest ? to_hex(*stamp.digest) : "--------------------------------");
  }
}

TEST(SlotFile, RefusesNamesThatCannotStandInOne) {
  const auto refused = [](std::string alias, const char* text) {
    EXPECT_THAT(make_header(Layout::arrange({{"a", DType::kU8, {1}}}, {{std::move(alias), "a"}}).value(), 1),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
  };
  refused("format", "tensor format is tied to a");
  refused("bascule.version", "tensor bascule.version is tied to a");
}

TEST(SlotFile, TakesNoOtherFileForOne) {
  const Layout layout = tied_layout();
  const std::string good = file_of(layout);
  EXPECT_THAT(parse(""), StatusIs(StatusCode::kInvalidArgument, HasSubstr("too few")));
  std::string unstamped = good;
  unstamped.replace(unstamped.find("bascule.digest"), 14, "bascule,digest");
  EXPECT_THAT(parse(unstamped), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no stamp")));
  EXPECT_THAT(parse(good.substr(0, good.size() - 1)), StatusIs(StatusCode::kInvalidArgument, HasSubstr("file: ")));
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {1}}};
  EXPECT_THAT(parse(safetensors_prefix(specs, {}, 64).value() + "x"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("does not begin on a page")));

  const test::TempFolder folder;
  std::string garbled = good;
  garbled[parse(good)->shape.stamp_at + 20] = 'g';  // not a hexadecimal digit
  ASSERT_THAT(replace_file(folder.path() / "file", garbled), IsOk());
  const UniqueFd fd(::open((folder.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(read_stamp(fd.get(), parse(good)->shape), StatusIs(StatusCode::kInvalidArgument, HasSubstr("no stamp")));
}

TEST(DigestFromHex, ReadsWhatToHexWrites) {
  const Digest digest{.low = 0x0123456789abcdef, .high = 0xf};
  EXPECT_EQ(digest_from_hex(to_hex(digest)), digest);
  for (const char* other : {"", "0", "000000000000000F0123456789abcdef", "000000000000000g0123456789abcdef",
                            "0x0000000000000f0123456789abcdef"})
    EXPECT_EQ(digest_from_hex(other), std::nullopt) << other;
}

}  // namespace
}  // namespace bascule::inline v0::memmap
