// Which tensor of a checkpoint's files is which one of the model.
//
// transformers saves a model without its head under names without "model.", and wrappers may add one more; it loads all
// of them. It leaves out tensors that the model does not have.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <bascule/trainer_ref/model/config.h>

namespace bascule::ref {

inline constexpr const char* kEmbeddingName = "model.embed_tokens.weight";
inline constexpr const char* kHeadName = "lm_head.weight";

class WeightNames {
 public:
  explicit WeightNames(const ModelConfig& config);

  // The model's name of the tensor `name`, or nullopt if it has no such tensor. A tied model has its head as well.
  std::optional<std::string> find(const std::string& name) const;

  // Whether a tensor that the model does not have belongs to a part of it, such as a bias of one of its layers. Without
  // it, the model would compute something else than the one that was saved.
  bool is_of_a_part(std::string_view name) const;

 private:
  std::set<std::string, std::less<>> names_, parts_;  // parts: names without ".weight" or ".bias"
};

}  // namespace bascule::ref
