#include <bascule/trainer_ref/model/weight_names.h>

#include <bascule/trainer_ref/model/decoder_weights.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

constexpr std::string_view kPrefix = "model.";

std::string_view part_of(std::string_view name) { return name.substr(0, name.rfind('.')); }

}  // namespace

WeightNames::WeightNames(const ModelConfig& config) {
  for (const TensorSpec& spec : weight_specs(config, DType::kF32)) names_.insert(spec.name);
  names_.insert(kHeadName);
  for (const std::string& name : names_) parts_.insert(std::string(part_of(name)));
  // A layer has its norms of queries and keys, and its adapters, only in other models.
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) parts_.insert(cat(kPrefix, "layers.", i));
}

std::optional<std::string> WeightNames::find(const std::string& name) const {
  if (names_.contains(name)) return name;
  if (name.starts_with(kPrefix) && names_.contains(name.substr(kPrefix.size()))) return name.substr(kPrefix.size());
  if (std::string longer = cat(kPrefix, name); names_.contains(longer)) return longer;
  return std::nullopt;
}

bool WeightNames::is_of_a_part(std::string_view name) const {
  if (!name.ends_with(".weight") && !name.ends_with(".bias")) return false;  // rotary_emb.inv_freq, attention masks
  for (const std::string& each : {std::string(name), cat(kPrefix, name)}) {
    if (parts_.contains(part_of(each))) return true;
    const std::size_t number = each.find("layers.") + std::string_view("layers.").size();
    if (each.starts_with("model.layers.") && parts_.contains(std::string_view(each).substr(0, each.find('.', number))))
      return true;
  }
  return false;
}

}  // namespace bascule::ref
