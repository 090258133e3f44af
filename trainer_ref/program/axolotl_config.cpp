#include <bascule/trainer_ref/program/axolotl_config.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <bascule/trainer_ref/program/axolotl_keys.h>
#include <bascule/trainer_ref/program/sections.h>
#include <bascule/transport/json.h>
#include <bascule/transport/program/nearest.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

// Removes a key, so that what remains is unknown. Returns nullopt if the section lacks it.
std::optional<json> take(json& section, std::string_view key) {
  const auto found = section.find(std::string(key));
  if (found == section.end()) return std::nullopt;
  json value = std::move(*found);
  section.erase(found);
  return value;
}

absl::Status check_value(const json& value, bool fits, std::string_view key, std::string_view expected) {
  if (fits) return absl::OkStatus();
  return invalid_argument("\"", key, "\": expected ", expected, ", found ", value.dump());
}

absl::Status translate_key(const AxolotlKey& key, const json& value, json& flags) {
  const std::string flag(key.flag);
  if (key.values.empty() && key.advice.empty()) {
    if (!flag.empty()) flags[flag] = value;
    return absl::OkStatus();
  }
  const json values = key.values.empty() ? json::object() : json::parse(key.values);
  const auto ours = values.find(text_of(value));
  if (ours == values.end()) return invalid_argument("\"", key.name, "\": ", value.dump(), ": ", key.advice);
  if (!ours->is_null()) flags[flag] = *ours;
  return absl::OkStatus();
}

// "HOST:PORT" of two keys of which one may be missing, or nullopt if both are.
absl::StatusOr<std::optional<std::string>> take_address(json& section, std::string_view host_key,
                                                        std::string_view port_key) {
  const std::optional<json> host = take(section, host_key), port = take(section, port_key);
  if (!host && !port) return std::nullopt;
  if (host) BASCULE_TRY(check_value(*host, host->is_string(), host_key, "a text"));
  if (port) BASCULE_TRY(check_value(*port, port->is_number_unsigned(), port_key, "a number"));
  std::string name = host ? host->get<std::string>() : "127.0.0.1";
  if (name.find(':') != std::string::npos && !name.starts_with('[')) name = cat("[", name, "]");
  return cat(name, ":", port ? port->dump() : "8000");
}

// Where the engines are: vllm_server_base_url, or vllm_server_host and vllm_server_port, if the run uses such a server.
absl::Status take_server(json& trl, json& flags) {
  absl::StatusOr<std::optional<std::string>> address = take_address(trl, "vllm_server_host", "vllm_server_port");
  BASCULE_TRY(address.status());
  const std::optional<json> url = take(trl, "vllm_server_base_url"), timeout = take(trl, "vllm_server_timeout");
  if (timeout) {
    BASCULE_TRY(check_value(*timeout, timeout->is_number(), "vllm_server_timeout", "seconds"));
    flags["engine-timeout"] = cat(timeout->dump(), "s");
  }
  const bool has_other_engines =
      trl.value("use_vllm", json(true)) == false || trl.value("vllm_mode", json()) == "colocate";
  if (has_other_engines || (!url && !*address)) return absl::OkStatus();
  if (url) BASCULE_TRY(check_value(*url, url->is_string(), "vllm_server_base_url", "a URL"));
  // A server listens at 0.0.0.0, and Axolotl's files also have it here.
  std::string host_port = address->value_or("");
  if (host_port.starts_with("0.0.0.0:")) host_port.replace(0, 7, "127.0.0.1");
  flags["engines"] = {url ? url->get<std::string>() : cat("http://", host_port)};
  return absl::OkStatus();
}

// An item of --reward. Commas and equals signs have a meaning there; what is escaped already stays so.
std::string reward_item(std::string_view name) {
  std::string item;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == ',' || name[i] == '=') item += '\\';
    item += name[i];
    if (name[i] == '\\' && i + 1 < name.size()) item += name[++i];
  }
  return item;
}

absl::Status take_rewards(json& trl, json& flags) {
  const std::optional<json> names = take(trl, "reward_funcs"), weights = take(trl, "reward_weights");
  if (weights)
    BASCULE_TRY(check_value(*weights,
                            weights->is_array() && names && names->is_array() && names->size() == weights->size(),
                            "reward_weights", "a list of one number per element of reward_funcs"));
  if (!names) return absl::OkStatus();
  BASCULE_TRY(check_value(*names, names->is_array() && !names->empty(), "reward_funcs", "a list of rewards"));
  std::string reward;
  for (std::size_t i = 0; i < names->size(); ++i) {
    const json& name = names->at(i);
    BASCULE_TRY(check_value(name, name.is_string(), "reward_funcs", "names of rewards"));
    const auto& text = name.get_ref<const std::string&>();
    if (text.find('.') != std::string::npos && text.find(':') == std::string::npos)
      return invalid_argument("\"reward_funcs\": ", text,
                              " is a Python function; write a reward such as math_match, or ",
                              "make it a program, as exec:./reward.py (docs/guide/data-and-rewards.md)");
    reward += cat(i > 0 ? "," : "", reward_item(text));
    if (!weights) continue;
    BASCULE_TRY(check_value(weights->at(i), weights->at(i).is_number(), "reward_weights", "numbers"));
    reward += cat("=", weights->at(i).dump());
  }
  flags["reward"] = reward;
  return absl::OkStatus();
}

absl::Status take_clipping(json& trl, json& flags) {
  const std::optional<json> low = take(trl, "epsilon"), high = take(trl, "epsilon_high");
  if (low) flags["epsilon-low"] = *low;
  if (high || low) flags["epsilon-high"] = high ? *high : *low;
  return absl::OkStatus();
}

absl::Status take_importance(json& trl, json& flags) {
  const std::optional<json> correction = take(trl, "vllm_importance_sampling_correction"),
                            cap = take(trl, "vllm_importance_sampling_cap");
  if (correction)
    BASCULE_TRY(
        check_value(*correction, correction->is_boolean(), "vllm_importance_sampling_correction", "true or false"));
  if (correction == json(false)) {
    flags["importance-cap"] = 0;
  } else if (cap) {
    flags["importance-cap"] = *cap;
  }
  return absl::OkStatus();
}

absl::Status take_prefetch(json& trl, json& flags) {
  const std::optional<json> prefetch = take(trl, "async_prefetch"), depth = take(trl, "prefetch_depth");
  if (prefetch) BASCULE_TRY(check_value(*prefetch, prefetch->is_boolean(), "async_prefetch", "true or false"));
  if (prefetch == json(true)) flags["max-staleness"] = depth ? *depth : json(1);
  return absl::OkStatus();
}

// Keys whose value becomes another one by a rule.
absl::Status take_others(json& trl, json& flags) {
  if (const std::optional<json> top_k = take(trl, "top_k")) flags["top-k"] = *top_k == -1 ? json(0) : *top_k;
  if (const std::optional<json> kwargs = take(trl, "chat_template_kwargs"))
    flags["chat-template-kwargs"] = text_of(*kwargs);
  return absl::OkStatus();
}

absl::Status take_listen(json& vllm, json& flags) {
  absl::StatusOr<std::optional<std::string>> address = take_address(vllm, "host", "port");
  BASCULE_TRY(address.status());
  if (*address) flags["listen"] = **address;
  return absl::OkStatus();
}

using Take = absl::Status (*)(json& section, json& flags);

struct AxolotlSection {
  std::string_view name, ours;
  std::span<const AxolotlKey> keys;
  std::vector<Take> together;  // for keys that only mean something together, which they remove
};

absl::StatusOr<json> translate(const AxolotlSection& section, const ConfigEntry& entry) {
  BASCULE_ASSIGN(json values, parse_json(entry.json, entry.name));
  if (!values.is_object()) return invalid_argument("expected an object of settings, found ", entry.json);
  for (auto value = values.begin(); value != values.end();)
    value = value->is_null() ? values.erase(value) : std::next(value);
  json flags = json::object();
  for (const Take take_some : section.together) BASCULE_TRY(take_some(values, flags));
  for (const auto& [name, value] : values.items()) {
    const auto key = std::find_if(section.keys.begin(), section.keys.end(),
                                  [&name = name](const AxolotlKey& known) { return known.name == name; });
    if (key == section.keys.end()) {
      std::vector<std::string> known;
      for (const AxolotlKey& one : section.keys) known.emplace_back(one.name);
      return invalid_argument("unknown key \"", name, "\"", did_you_mean(name, known), "; flags of ours belong beside ",
                              "the section, or in \"", section.ours, "\"");
    }
    BASCULE_TRY(translate_key(*key, value, flags));
  }
  return flags;
}

absl::Status check_beside(const ConfigEntry& entry) {
  for (const AxolotlHint& hint : axolotl_hints())
    if (entry.name == hint.name)
      return invalid_argument("\"", entry.name, "\" is no flag, but a key of Axolotl; ", hint.advice);
  if (entry.name == "adapter" && (entry.json == R"("lora")" || entry.json == R"("qlora")"))
    return invalid_argument("\"adapter\" is a folder here, found ", entry.json,
                            "; write lora-rank, which trains a new one");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<ConfigEntry>> from_axolotl(std::vector<ConfigEntry> entries) {
  const AxolotlSection sections[] = {
      {.name = "trl",
       .ours = kTrainSection,
       .keys = trl_keys(),
       .together = {take_server, take_rewards, take_clipping, take_importance, take_prefetch, take_others}},
      {.name = "vllm", .ours = kEngineSection, .keys = vllm_keys(), .together = {take_listen}}};
  std::vector<ConfigEntry> ours;
  for (const ConfigEntry& entry : entries) {
    BASCULE_TRY(check_beside(entry));
    for (const AxolotlSection& section : sections) {
      if (entry.name != section.name) continue;
      absl::StatusOr<json> flags = translate(section, entry);
      BASCULE_TRY(annotate(flags.status(), cat("\"", entry.name, "\"")));
      ours.push_back({.name = std::string(section.ours), .json = flags->dump()});
    }
  }
  for (ConfigEntry& entry : entries)
    if (std::none_of(std::begin(sections), std::end(sections),
                     [&](const auto& section) { return entry.name == section.name; }))
      ours.push_back(std::move(entry));
  return ours;
}

}  // namespace bascule::ref
