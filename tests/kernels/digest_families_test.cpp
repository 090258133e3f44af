// Families of structured changes, which random bytes never try. The digests of each family's thousands of changed slots
// must all differ in both halves, from each other and from the slot before the change.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "canvas.h"
#include "processors.h"

namespace bascule::inline v0::kernels {
namespace {

constexpr std::size_t kTiles = 4;

struct Content {
  const char* name;
  // The value at row `row` and column `column` of `columns`.
  std::function<int(std::size_t row, std::size_t column, std::size_t columns)> at;
};

const std::vector<Content>& contents() {
  static const std::vector<Content> all = {
      {"zeros", [](auto, auto, auto) { return 0; }},
      {"constant", [](auto, auto, auto) { return 7; }},
      {"identity", [](auto row, auto column, auto columns) { return row % columns == column ? 1 : 0; }},
      {"one_hot", [](auto row, auto column, auto columns) { return mix64(1 + row) % columns == column ? 1 : 0; }},
      {"progression",
       [](auto row, auto column, auto columns) { return static_cast<int>((row * columns + column) % 101); }},
      {"random", [](auto row, auto column,
                    auto columns) { return static_cast<int>(mix64(1 + row * columns + column) % 101) - 50; }},
  };
  return all;
}

// A change of the canvas; `row` is the number of bytes in a row.
struct Family {
  const char* name;
  std::function<void(Canvas&, std::size_t row, std::mt19937_64&)> change;
  std::size_t share = 1;  // divides the number of changes: each touches every tile
};

// Two different numbers below `count`.
std::pair<std::size_t, std::size_t> two_of(std::size_t count, std::mt19937_64& random) {
  const std::size_t one = random() % count;
  return {one, (one + 1 + random() % (count - 1)) % count};
}

void exchange(Canvas& canvas, std::size_t unit, std::mt19937_64& random) {
  const auto [one, other] = two_of(canvas.bytes() / unit, random);
  canvas.swap(one * unit, other * unit, unit);
}

int small(std::mt19937_64& random) { return 1 + static_cast<int>(random() % 3); }

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"rows_exchanged", [](Canvas& canvas, std::size_t row, auto& random) { exchange(canvas, row, random); }},
      {"rows_exchanged_twice",
       [](Canvas& canvas, std::size_t row, auto& random) {
         exchange(canvas, row, random);
         exchange(canvas, row, random);
       }},
      {"pages_exchanged", [](Canvas& canvas, std::size_t, auto& random) { exchange(canvas, 4096, random); }},
      {"tiles_exchanged", [](Canvas& canvas, std::size_t, auto& random) { exchange(canvas, kTileBytes, random); }, 64},
      {"words_exchanged", [](Canvas& canvas, std::size_t, auto& random) { exchange(canvas, 8, random); }},
      {"halves_exchanged", [](Canvas& canvas, std::size_t, auto& random) { exchange(canvas, 4, random); }},
      {"elements_exchanged",
       [](Canvas& canvas, std::size_t, auto& random) { exchange(canvas, canvas.element_bytes(), random); }},
      {"columns_exchanged",
       [](Canvas& canvas, std::size_t row, auto& random) {
         const auto [one, other] = two_of(row / canvas.element_bytes(), random);
         for (std::size_t at = 0; at < canvas.bytes(); at += row)
           canvas.swap(at + one * canvas.element_bytes(), at + other * canvas.element_bytes(), canvas.element_bytes());
       },
       16},
      {"rows_rotated",
       [](Canvas& canvas, std::size_t row, auto& random) {
         canvas.rotate((1 + random() % (canvas.bytes() / row - 1)) * row);
       },
       16},
      {"plus_minus",
       [](Canvas& canvas, std::size_t, auto& random) {
         const auto [one, other] = two_of(canvas.elements(), random);
         const int k = small(random);
         canvas.add(one, k);
         canvas.add(other, -k);
       }},
      {"plus_minus_two_plus",
       [](Canvas& canvas, std::size_t row, auto& random) {  // on three equidistant elements, lines, rows or pages
         const std::size_t units[] = {canvas.element_bytes(), 64, row, 4096};
         const std::size_t unit = units[random() % 4], count = canvas.bytes() / unit, distance = 1 + random() % 7;
         const std::size_t first = random() % (count - 2 * distance),
                           in_unit = random() % (unit / canvas.element_bytes());
         const int k = small(random);
         for (const auto& [i, number] : {std::pair<std::size_t, int>{0, k}, {1, -2 * k}, {2, k}})
           canvas.add((first + i * distance) * unit / canvas.element_bytes() + in_unit, number);
       }},
      {"rectangle",
       [](Canvas& canvas, std::size_t row, auto& random) {
         const std::size_t columns = row / canvas.element_bytes();
         const auto [top, bottom] = two_of(canvas.bytes() / row, random);
         const auto [left, right] = two_of(columns, random);
         const int k = small(random);
         canvas.add(top * columns + left, k);
         canvas.add(top * columns + right, -k);
         canvas.add(bottom * columns + left, -k);
         canvas.add(bottom * columns + right, k);
       }},
      {"signs_flipped",
       [](Canvas& canvas, std::size_t, auto& random) {
         const auto [one, other] = two_of(canvas.elements() / 2, random);
         for (const std::size_t element : {one, other}) canvas.flip_sign(element);
         if (random() % 2 == 0) {
           canvas.flip_sign(one + canvas.elements() / 2);
           canvas.flip_sign(other + canvas.elements() / 2);
         }
       }},
      {"row_of_signs_flipped",
       [](Canvas& canvas, std::size_t row, auto& random) {
         const auto [one, other] = two_of(canvas.bytes() / row, random);
         const std::size_t columns = row / canvas.element_bytes();
         for (const std::size_t at : {one, other})
           for (std::size_t i = 0; i < columns; ++i) canvas.flip_sign(at * columns + i);
       }},
      {"row_of_a_constant",
       [](Canvas& canvas, std::size_t row, auto& random) {
         const std::size_t columns = row / canvas.element_bytes(), at = random() % (canvas.bytes() / row);
         const int number = static_cast<int>(random() % 200) - 100;
         for (std::size_t i = 0; i < columns; ++i) canvas.put(at * columns + i, number);
       }},
      {"all_of_a_constant",
       [](Canvas& canvas, std::size_t, auto& random) {
         const int number = static_cast<int>(random() % 2000) - 1000;
         for (std::size_t i = 0; i < canvas.elements(); ++i) canvas.put(i, number);
       },
       64},
      {"all_of_a_progression",
       [](Canvas& canvas, std::size_t, auto& random) {
         const int first = static_cast<int>(random() % 20) - 10, step = static_cast<int>(random() % 20) - 10;
         for (std::size_t i = 0; i < canvas.elements(); ++i) canvas.put(i, first + step * static_cast<int>(i));
       },
       64},
  };
  return all;
}

struct Case {
  DType dtype;
  std::size_t content;
};

class DigestOfFamilies : public testing::TestWithParam<Case> {};

TEST_P(DigestOfFamilies, SeesEveryChange) {
  const Content& content = contents()[GetParam().content];
  constexpr std::size_t kChanges = kIsInstrumented ? 8 : 100;  // per family and row
  std::size_t pairs = 0;
  for (const std::size_t row : {std::size_t{64}, std::size_t{512}, std::size_t{4096}, std::size_t{8192}}) {
    const std::size_t columns = row / size_of(GetParam().dtype);
    Canvas canvas(GetParam().dtype, kTiles,
                  [&](std::size_t element) { return content.at(element / columns, element % columns, columns); });
    struct Seen {
      Digest digest;
      const Family* family;  // null: the original
      std::uint64_t seed;
    };
    std::vector<Seen> seen = {{canvas.digest(), nullptr, 0}};
    const auto make = [&](const Family* family, std::uint64_t seed) {
      canvas.undo();
      std::mt19937_64 random(seed);
      if (family != nullptr) family->change(canvas, row, random);
    };
    for (const Family& family : families()) {
      for (std::size_t i = 0; i < (kChanges + family.share - 1) / family.share; ++i) {
        make(&family, i);
        const Digest digest = canvas.digest();
        if (digest == seen[0].digest && canvas.is_original()) continue;  // for example two rows of zeros exchanged
        seen.push_back({digest, &family, i});
      }
    }
    // Each half is compared separately: two are equal with a chance of 2^-64.
    for (const auto half : {&Digest::low, &Digest::high}) {
      std::sort(seen.begin(), seen.end(),
                [&](const Seen& a, const Seen& b) { return a.digest.*half < b.digest.*half; });
      for (std::size_t i = 1; i < seen.size(); ++i) {
        const Seen &one = seen[i - 1], &other = seen[i];
        if (one.digest.*half != other.digest.*half) continue;
        make(one.family, one.seed);
        const std::vector<std::byte> bytes = canvas.now();
        make(other.family, other.seed);
        if (same_bytes(bytes, canvas.now())) continue;  // since two changes may have the same result
        const auto name = [](const Seen& of) { return of.family == nullptr ? "the original" : of.family->name; };
        ADD_FAILURE() << "rows of " << row << " bytes: " << name(one) << " (" << one.seed << ") and " << name(other)
                      << " (" << other.seed << ") have the digests " << to_hex(one.digest) << " and "
                      << to_hex(other.digest);
      }
    }
    pairs += seen.size() * (seen.size() - 1) / 2;
  }
  RecordProperty("pairs", std::to_string(pairs));
}

// All dtypes with all contents; if instrumented, only with zeros and random numbers, since other contents differ in
// what is hashed, not in what is read.
std::vector<Case> cases() {
  const std::size_t step = kIsInstrumented ? contents().size() - 1 : 1;
  std::vector<Case> all;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64, DType::kI32, DType::kI16,
                            DType::kI8, DType::kU8, DType::kBool})
    for (std::size_t content = 0; content < contents().size(); content += step) all.push_back({dtype, content});
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, DigestOfFamilies, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return std::string(name_of(info.param.dtype)) + "_" + contents()[info.param.content].name;
                         });

}  // namespace
}  // namespace bascule::inline v0::kernels
