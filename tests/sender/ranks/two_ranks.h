// The fixture of tests with two ranks.
#pragma once

#include "sender/ranks/ranks_fixture.h"

namespace bascule::test {

// w is cut by rows over two ranks, u by columns; both hold b, and one holds c.
class TwoRanks : public RanksFixture, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    use_scheme(GetParam());
    make_ranks(2, {{"w", DType::kF32, {900, 70}},
                   {"u", DType::kF32, {400, 80}},
                   {"b", DType::kF32, {33}},
                   {"c", DType::kF32, {20}}});
    boxes_[0].add(0, {0, 0}, {455, 70});
    boxes_[1].add(0, {455, 0}, {445, 70});
    boxes_[0].add(1, {0, 0}, {400, 30});
    boxes_[1].add(1, {0, 30}, {400, 50});
    for (HeldBoxes& held : boxes_) held.add(2, {0}, {33});
    boxes_[1].add(3, {0}, {20});
    fill(1);
  }
};

}  // namespace bascule::test
