// What the schemes write and read, while memory runs out: each call throws std::bad_alloc, or does what it should. None
// ends the process, as a tree of nlohmann::json does: it allocates when it is destroyed.
#include <gmock/gmock.h>

#include <functional>
#include <span>
#include <string>

#include "no_memory/failing_allocator.h"
#include "support/temp_folder.h"
#include <bascule/schemes/memmap/manifest.h>
#include <bascule/schemes/memmap/slot_file.h>
#include <bascule/schemes/nccl/environment.h>
#include <bascule/schemes/nccl/messages.h>
#include <bascule/schemes/relay/messages.h>
#include <bascule/transport/caught.h>
#include <bascule/transport/json_value.h>
#include <bascule/transport/posix/atomic_file.h>
#include <bascule/transport/safetensors.h>
#include <bascule/transport/status.h>

namespace bascule::test {
namespace {

// Calls `work` with the first allocation failing, then the second, until none fails.
void fail_at_each(const std::function<absl::Status()>& work) {
  std::size_t n = 1;
  for (;; ++n) {
    SCOPED_TRACE(cat("allocation ", n));
    fail_at(n);
    const absl::Status done = caught(work);
    if (!stop_failing()) {
      EXPECT_TRUE(done.ok()) << done;
      break;
    }
    // A file stream takes a failure for an end of its file.
    EXPECT_FALSE(absl::IsInternal(done)) << done;
  }
  EXPECT_GT(n, 2U);
}

const std::string kLong(1000, 'x');

Layout a_layout() {
  std::vector<TensorSpec> specs;
  for (int i = 0; i < 20; ++i) specs.push_back({cat("a rather long name of a tensor ", i), DType::kF32, {2, 3}});
  return Layout::arrange(specs, {{"a rather long name of an alias", specs[3].name}}).value();
}

TEST(TextsWithoutMemory, MessagesOfARelay) {
  const relay::RelayMessage message{
      .kind = relay::RelayMessage::Kind::kTake, .spared = {1, 2, 3, 4}, .place = kLong, .why = kLong};
  fail_at_each([&] { return relay::parse_message(relay::to_bytes(message)).status(); });
}

TEST(TextsWithoutMemory, MessagesOfNccl) {
  const nccl::GroupMessage message{.kind = nccl::GroupMessage::Kind::kFailed, .why = kLong};
  fail_at_each([&] { return nccl::parse_message(nccl::to_bytes(message)).status(); });
  const nccl::Environment environment{.version = 22809, .settings = {{"NCCL_ALGO", kLong}, {"NCCL_PROTO", kLong}}};
  fail_at_each([&] { return nccl::parse_environment(nccl::to_bytes(environment)).status(); });
}

TEST(TextsWithoutMemory, TheManifestOfMemmap) {
  const TempFolder files;
  std::vector<memmap::WholeVersion> versions;
  for (std::uint32_t i = 0; i < 8; ++i)
    versions.push_back(
        {.slot = {1, i}, .inode = i, .bytes = 8, .stamp = {.epoch = 1, .version = i + 1, .digest = Digest{}}});
  fail_at_each([&]() -> absl::Status {
    BASCULE_ASSIGN(const memmap::Folder folder, memmap::Folder::open(files.path()));
    BASCULE_TRY(replace_file(files.path() / memmap::kManifest, memmap::manifest_text(versions), folder.fd()).status());
    return memmap::read_manifest(folder).status();
  });
}

TEST(TextsWithoutMemory, TheHeaderOfASlotsFile) {
  const Layout layout = a_layout();
  fail_at_each([&]() -> absl::Status {
    BASCULE_ASSIGN(std::string file, memmap::make_header(layout, 7));
    file.resize(file.size() + layout.bytes());
    return memmap::parse_slot_file(std::as_bytes(std::span(file)), "a test").status();
  });
}

TEST(TextsWithoutMemory, AnyJson) {
  std::string text = "[[[[1,2.5,-3,null,true,\"" + kLong + "\"]]]";
  for (int i = 0; i < 20; ++i) text += cat(",{\"a rather long key ", i, "\":{\"x\":[1,[2]]}}");
  text += "]";
  fail_at_each([&] { return JsonValue::parse(text, "a test").status(); });
  text.pop_back();
  fail_at_each([&] {
    const absl::Status refused = JsonValue::parse(text, "a test").status();
    return absl::IsInvalidArgument(refused) ? absl::OkStatus() : absl::InternalError(cat(message_of(refused)));
  });
}

}  // namespace
}  // namespace bascule::test
