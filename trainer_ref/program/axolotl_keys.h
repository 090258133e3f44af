// The keys of Axolotl's config files, and what each means here.
#pragma once

#include <span>
#include <string_view>

namespace bascule::ref {

// A key of a section. Its value becomes the value of `flag`, by `values` if it has some. `values` is an object of JSON
// from the value, as text, to the flag's value; null there leaves the flag out, and other values are refused with
// `advice`. A key with neither flag nor advice changes nothing here, and any value of it will do.
struct AxolotlKey {
  std::string_view name;
  std::string_view flag = {};
  std::string_view values = {};
  std::string_view advice = {};
};

// A key beside the sections that names no flag.
struct AxolotlHint {
  std::string_view name, advice;
};

// Of the section `trl`, for bascule-train, and of `vllm`, for bascule-engine; without the keys that only mean something
// together (axolotl_config.cpp).
std::span<const AxolotlKey> trl_keys();
std::span<const AxolotlKey> vllm_keys();

std::span<const AxolotlHint> axolotl_hints();

}  // namespace bascule::ref
