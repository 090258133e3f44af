#include <bascule/schemes/nccl/library.h>

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "support/nccl/fake_nccl.h"
#include "support/status.h"

namespace bascule::inline v0::nccl {
namespace {

using absl::StatusCode;
using test::FakeNccl;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// The fake's functions under NCCL's names, for a library that lacks some.
void* symbol_of_fake(const std::string& name) {
  const Library& fake = FakeNccl::instance().library();
  if (name == "ncclGetVersion") return reinterpret_cast<void*>(fake.get_version);
  if (name == "ncclGetUniqueId") return reinterpret_cast<void*>(fake.get_unique_id);
  if (name == "ncclCommInitRankConfig") return reinterpret_cast<void*>(fake.comm_init_rank_config);
  if (name == "ncclCommGetAsyncError") return reinterpret_cast<void*>(fake.comm_get_async_error);
  if (name == "ncclBroadcast") return reinterpret_cast<void*>(fake.broadcast);
  if (name == "ncclCommFinalize") return reinterpret_cast<void*>(fake.comm_finalize);
  if (name == "ncclCommDestroy") return reinterpret_cast<void*>(fake.comm_destroy);
  if (name == "ncclCommAbort") return reinterpret_cast<void*>(fake.comm_abort);
  if (name == "ncclGetErrorString") return reinterpret_cast<void*>(fake.error_string);
  if (name == "ncclGetLastError") return reinterpret_cast<void*>(fake.last_error);
  if (name == "ncclCommRevoke") return reinterpret_cast<void*>(fake.comm_revoke);
  return nullptr;
}
absl::StatusOr<Library> bound_without(const std::set<std::string>& lacking) {
  return library_of([&](const char* name) { return lacking.contains(name) ? nullptr : symbol_of_fake(name); },
                    "libfake.so");
}

class NcclLibrary : public testing::Test {
 protected:
  NcclLibrary() { FakeNccl::instance().renew(); }
};

TEST_F(NcclLibrary, FindsEveryFunctionUnderItsName) {
  const auto library = bound_without({});
  ASSERT_THAT(library, IsOk());
  const Library& fake = FakeNccl::instance().library();
  EXPECT_EQ(library->get_version, fake.get_version);
  EXPECT_EQ(library->get_unique_id, fake.get_unique_id);
  EXPECT_EQ(library->comm_init_rank_config, fake.comm_init_rank_config);
  EXPECT_EQ(library->comm_get_async_error, fake.comm_get_async_error);
  EXPECT_EQ(library->broadcast, fake.broadcast);
  EXPECT_EQ(library->comm_finalize, fake.comm_finalize);
  EXPECT_EQ(library->comm_destroy, fake.comm_destroy);
  EXPECT_EQ(library->comm_abort, fake.comm_abort);
  EXPECT_EQ(library->error_string, fake.error_string);
  EXPECT_EQ(library->last_error, fake.last_error);
  EXPECT_EQ(library->comm_revoke, fake.comm_revoke);
}

TEST_F(NcclLibrary, MayLackRevoke) {
  const auto library = bound_without({"ncclCommRevoke"});
  ASSERT_THAT(library, IsOk());
  EXPECT_EQ(library->comm_revoke, nullptr);
}

TEST_F(NcclLibrary, NamesWhatALibraryLacks) {
  EXPECT_THAT(bound_without({"ncclCommAbort", "ncclBroadcast"}),
              StatusIs(StatusCode::kUnimplemented,
                       AllOf(HasSubstr("libfake.so has no ncclBroadcast, ncclCommAbort; "), HasSubstr("install"))));
  EXPECT_THAT(bound_without({"ncclGetVersion"}), StatusIs(StatusCode::kUnimplemented, HasSubstr("ncclGetVersion")));
}

TEST_F(NcclLibrary, RefusesOneThatIsTooOldAsThatAndNotForWhatItLacks) {
  FakeNccl::instance().set_version(22605);
  EXPECT_THAT(bound_without({"ncclBroadcast"}),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("expected NCCL 2.27 or newer, found 2.26.5 in libfake.so"),
                             HasSubstr("LD_LIBRARY_PATH"), Not(HasSubstr("ncclBroadcast")))));
  FakeNccl::instance().set_version(22700);
  EXPECT_THAT(bound_without({}), IsOk());
}

TEST(NcclOpen, SaysHowToInstallWhatIsNotThere) {
  EXPECT_THAT(open_library("libbascule_no_such_nccl.so.2"),
              StatusIs(StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot load libbascule_no_such_nccl.so.2"), HasSubstr("pip install"),
                             HasSubstr("apt install"), HasSubstr("LD_LIBRARY_PATH"))));
}

TEST(NcclOpen, RefusesALibraryThatIsNotNccl) {
  EXPECT_THAT(open_library("libc.so.6"), StatusIs(StatusCode::kUnimplemented, HasSubstr("has no ncclGetVersion")));
}

// Must hold with and without NCCL on this machine.
TEST(NcclLoad, GivesTheProcessesOneOrSaysWhatToDo) {
  const auto library = load();
  EXPECT_EQ(load().status(), library.status());
  if (!library.ok()) {
    EXPECT_THAT(library.status().message(), HasSubstr("install NCCL 2.27 or newer"));
    return;
  }
  EXPECT_EQ(*load(), *library);
  int version = 0;
  EXPECT_EQ((*library)->get_version(&version), Code::kSuccess);
  EXPECT_GE(version, kOldestVersion);
  EXPECT_THAT((*library)->error_string(Code::kInProgress), HasSubstr("progress"));
}

TEST(NcclVersion, IsWrittenAsPeopleWriteIt) {
  EXPECT_EQ(version_text(22809), "2.28.9");
  EXPECT_EQ(version_text(22703), "2.27.3");
  EXPECT_EQ(version_text(2708), "2.7.8");
}

}  // namespace
}  // namespace bascule::inline v0::nccl
