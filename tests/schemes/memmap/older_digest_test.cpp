// A folder whose versions have digests of another function: it is refused by name, and left as it is.
#include <gmock/gmock.h>

#include <filesystem>
#include <map>
#include <string>

#include "schemes/memmap/trainer.h"
#include "support/status.h"
#include "support/temp_folder.h"
#include <bascule/schemes/memmap/manifest.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/posix/files.h>

namespace bascule::inline v0::memmap {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

class OlderDigest : public testing::Test {
 protected:
  // Two versions, as written before the header had the number; nothing else differs.
  OlderDigest() {
    test::MemmapTrainer trainer(folder_.path(), 5);
    trainer.send(0, 1);
    trainer.send(1, 2);
    rewrite(kManifest, "\n \"digest_number\": 2,", "");
    for (const char* file : {"slot-5-0.safetensors", "slot-5-1.safetensors"}) {
      const std::string number = "\"bascule.digest_number\":\"2\",";
      rewrite(file, number, "");
      rewrite(file, "} ", "} " + std::string(number.size(), ' '));  // the header is as long as it was
    }
  }
  void rewrite(const std::string& file, const std::string& from, const std::string& to) {
    auto text = read_file(folder_.path() / file, 1 << 20);
    ASSERT_THAT(text, IsOk());
    ASSERT_NE(text->find(from), std::string::npos) << file << ": " << from;
    text->replace(text->find(from), from.size(), to);
    ASSERT_THAT(replace_file(folder_.path() / file, *text), IsOk());
  }
  std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      all[entry.path().filename()] = read_file(entry.path(), 1 << 20).value_or("none");
    return all;
  }
  // Both by a sender and by a reader.
  void expect_refused(const std::string& file, const std::string& numbers) {
    const auto before = files();
    const auto refused = StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr(file), HasSubstr(numbers)));
    EXPECT_THAT(test::MemmapTrainer(folder_.path(), 6).status(), refused);
    EXPECT_THAT(test::memmap_reader(folder_.path())->kept_versions()->find_versions(0), refused);
    EXPECT_EQ(files(), before);
  }
  const test::TempFolder folder_;
};

TEST_F(OlderDigest, IsFoundInTheManifest) { expect_refused("/manifest.json", "of function 1, expected 2"); }

TEST_F(OlderDigest, IsFoundInTheFilesWhereThereIsNoManifest) {
  std::filesystem::remove(folder_.path() / kManifest);
  expect_refused("/slot-5-", "of function 1, expected 2");
}

TEST_F(OlderDigest, MayBeANewerOneAsWell) {
  rewrite(kManifest, "\"versions\"", "\"digest_number\": 3, \"versions\"");
  expect_refused("/manifest.json", "of function 3, expected 2");
}

}  // namespace
}  // namespace bascule::inline v0::memmap
