#include "schemes/registry.h"

#include <gmock/gmock.h>

#include "support/status.h"

namespace bascule {
namespace {

using absl::StatusCode;
using test::IsOk;
using test::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(Registry, FindsASchemeByItsName) {
  const auto shm = find_scheme("shm");
  ASSERT_THAT(shm, IsOk());
  EXPECT_EQ((*shm)->name, "shm");
  EXPECT_TRUE((*shm)->needs_descriptors);
  EXPECT_EQ(*find_scheme("shm"), *shm) << "it lives as long as the program";
  ASSERT_TRUE((*shm)->make_slot && (*shm)->make_sender && (*shm)->make_receiver);
  EXPECT_NE((*shm)->make_sender(), (*shm)->make_sender()) << "each sender has one of its own";
  EXPECT_NE((*shm)->make_receiver(), nullptr);
}

TEST(Registry, ListsWhatThereIsAndNamesTheNearest) {
  EXPECT_THAT(find_scheme("smh"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("no scheme is called 'smh'; expected one of: "),
                                                    HasSubstr("shm"), HasSubstr("(did you mean shm?)"))));
  EXPECT_THAT(find_scheme("carrier-pigeon"),
              StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("expected one of: "), Not(HasSubstr("did you mean")))));
  EXPECT_THAT(find_scheme(""), StatusIs(StatusCode::kNotFound, HasSubstr("expected one of: ")));
}

}  // namespace
}  // namespace bascule
