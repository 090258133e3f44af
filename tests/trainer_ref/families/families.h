// The checkpoints of the served families, and the results of Hugging Face's transformers for them.
#pragma once

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace bascule::ref::test {

using Json = nlohmann::ordered_json;

inline std::filesystem::path family_folder(const char* family) {
  return std::filesystem::path(BASCULE_FAMILIES) / family;
}

// `which`: "texts" or "chats".
inline Json expected_of(const char* family, const char* which) {
  Json cases = Json::parse(std::ifstream(family_folder(family) / "expected.json"))[which];
  EXPECT_GE(cases.size(), 4u);
  return cases;
}

inline auto all_families() { return testing::Values("llama", "mistral", "qwen2", "qwen3"); }
inline std::string name_of(const testing::TestParamInfo<const char*>& info) { return info.param; }

}  // namespace bascule::ref::test
