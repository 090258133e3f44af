// What a folder has that is not a whole checkpoint in the form that is read here, for the error that says so.
#pragma once

#include <filesystem>
#include <string>

namespace bascule::ref {

// Of a folder without config.json: whether it is an adapter, a model in another format, or has a checkpoint in a
// subfolder; and what to give. Returns "" if nothing is known about it.
std::string instead_of_config(const std::filesystem::path& folder);

// Of a folder without model.safetensors and its index: which other weights it has, and how to convert them. Returns ""
// if it has none.
std::string instead_of_weights(const std::filesystem::path& folder);

}  // namespace bascule::ref
