// wire_dtype: floating-point tensors travel as another type, rounded to nearest, ties to even; others as they are.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "conformance/suite.h"
#include <bascule/receiver/receiver.h>

namespace bascule::test {
namespace {

// bfloat16 by its definition: the nearer of a float's two neighbours; if both are equally near, the even one.
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return 0x7FFF;
  const auto below = static_cast<std::uint16_t>(bits >> 16), above = static_cast<std::uint16_t>(below + 1);
  const std::uint32_t rest = bits & 0xFFFF;
  if (rest < 0x8000) return below;
  if (rest > 0x8000) return above;
  return (below & 1) == 0 ? below : above;
}

TEST_P(Conformance, FloatsArriveAsTheWireDtypeRoundedToEven) {
  BASCULE_RECEIVES_HERE();
  std::vector<float> floats;
  for (std::uint32_t i = 0; i < 4097; ++i)  // all signs, exponents and ties
    floats.push_back(std::bit_cast<float>(i * 0x000FF7FFu + (i % 3) * 0x8000u));
  floats.push_back(std::numeric_limits<float>::infinity());
  floats.push_back(std::numeric_limits<float>::max());
  floats.push_back(std::numeric_limits<float>::denorm_min());
  floats.push_back(std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int32_t> integers = {1, -2, 3};
  std::vector<std::pair<TensorSpec, const void*>> tensors = {
      {{"floats", DType::kF32, {static_cast<std::int64_t>(floats.size())}}, floats.data()},
      {{"integers", DType::kI32, {3}}, integers.data()}};

  absl::StatusOr<Sender> sender = try_listen("wire_dtype=bf16");
  ASSERT_THAT(sender, IsOk());
  ASSERT_THAT(sender->register_model(placed(host_tensors(tensors), device())), IsOk());
  ASSERT_THAT(sender->send(), IsOk());
  absl::StatusOr<Receiver> receiver =
      Receiver::connect({.endpoint = endpoint(), .worker = "a", .scheme = given_scheme()});
  ASSERT_THAT(receiver, IsOk());
  ASSERT_THAT(receiver->wait_ready(patience()), IsOk());
  const Weights& weights = receiver->weights(receiver->commit().slot);

  const TensorView* cast = weights.find("floats");
  ASSERT_NE(cast, nullptr);
  ASSERT_EQ(cast->dtype, DType::kBF16);
  const std::vector<std::byte> cast_bytes = bytes_of(*cast);
  for (std::size_t i = 0; i < floats.size(); ++i) {
    std::uint16_t found = 0;
    std::memcpy(&found, cast_bytes.data() + 2 * i, 2);
    ASSERT_EQ(found, to_bf16(floats[i])) << "of " << floats[i] << ", element " << i;
  }
  const TensorView* kept = weights.find("integers");
  ASSERT_NE(kept, nullptr);
  EXPECT_EQ(kept->dtype, DType::kI32);
  EXPECT_EQ(std::memcmp(bytes_of(*kept).data(), integers.data(), sizeof(std::int32_t) * integers.size()), 0);
}

}  // namespace
}  // namespace bascule::test
