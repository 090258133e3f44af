// The order of names equals the order in which a plain sort puts them.
#include <bascule/transport/name_order.h>

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>

namespace bascule::inline v0 {
namespace {

using testing::ElementsAre;

std::vector<std::string_view> views_of(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }

void expect_sorted(std::vector<std::string> names) {
  std::vector<std::string> found;
  for (const std::uint32_t number : name_order(views_of(names))) found.push_back(names[number]);
  std::ranges::sort(names);
  EXPECT_EQ(found, names);
}

TEST(NameOrder, OfNoneAndOfOne) {
  EXPECT_THAT(name_order({}), ElementsAre());
  EXPECT_THAT(name_order(std::vector<std::string_view>{""}), ElementsAre(0));
}

TEST(NameOrder, OfTensorsOfAModel) {
  std::vector<std::string> names = {"lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"};
  for (int layer = 0; layer < 120; ++layer)
    for (const char* part : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.k_norm", "mlp.up_proj"})
      for (const char* kind : {".weight", ".bias", ""})
        names.push_back("model.layers." + std::to_string(layer) + "." + part + kind);
  expect_sorted(names);
}

TEST(NameOrder, OfNamesThatAreTheBeginningsOfOthers) {
  std::vector<std::string> names;
  for (std::size_t length = 0; length < 3000; ++length) names.emplace_back((length * 7919) % 3000, 'a');
  expect_sorted(names);
}

// Zeros and bytes above 127 among them, and names that stand twice.
TEST(NameOrder, OfRandomNames) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 2000; ++round) {
    const std::string letters(
        "\0\x01"
        "a\xff",
        round % 2 == 0 ? 4 : 1);
    std::vector<std::string> names(random() % 60);
    for (std::string& name : names) {
      name.assign(random() % 3 * 8, 'x');
      for (std::uint64_t i = random() % 20; i > 0; --i) name += letters[random() % letters.size()];
    }
    expect_sorted(names);
  }
}

}  // namespace
}  // namespace bascule::inline v0
