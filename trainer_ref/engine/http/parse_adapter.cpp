#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "absl/strings/ascii.h"
#include <bascule/trainer_ref/engine/http/adapter_request.h>
#include <bascule/trainer_ref/engine/http/fields.h>
#include <bascule/trainer_ref/engine/http/request_fields.h>
#include <bascule/transport/status.h>
#include <bascule/transport/utf8.h>

namespace bascule::ref {
namespace {

using nlohmann::json;

constexpr std::size_t kMostNameBytes = 255;  // it stands in answers, logs and metrics

std::string read_text(Fields& fields, const char* field, const char* example) {
  const json* given = fields.find(field);
  if (given != nullptr && given->is_string() && !given->get_ref<const std::string&>().empty())
    return given->get<std::string>();
  if (given == nullptr) {
    fields.refuse(invalid_argument(field, " is missing: give ", example));
  } else {
    fields.refuse(field, *given, example);
  }
  return "";
}

constexpr const char* kName = "the adapter's name, as \"math\"";
constexpr const char* kPath = "a folder of PEFT, or the URL of an endpoint, as \"shm:///run/user/1000/grpo/math\"";

absl::StatusOr<AdapterRequest> checked(Fields& fields, const ModelCard& card, AdapterRequest request) {
  BASCULE_TRY(fields.status);
  if (!request.source.empty()) BASCULE_TRY(check_adapter_name(card, request.name));
  if (request.source.find('\0') != std::string::npos)  // the system would read the path up to there
    return invalid_argument("an adapter's source: expected ", kPath, ", found a text with a NUL character; remove it");
  request.ignored = fields.unread();
  return request;
}

}  // namespace

absl::Status check_adapter_name(const ModelCard& card, std::string_view name) {
  if (name.empty() || name.size() > kMostNameBytes || !is_utf8(name) ||
      std::any_of(name.begin(), name.end(), absl::ascii_iscntrl))
    return invalid_argument("an adapter's name: expected 1 to ", kMostNameBytes,
                            " bytes of UTF-8 without control characters");
  if (answers_to(card, name))
    return invalid_argument("an adapter's name: ", name, " is the model's own name; give another one");
  return absl::OkStatus();
}

absl::StatusOr<AdapterRequest> parse_load_lora_adapter(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  AdapterRequest request{.name = read_text(fields, "lora_name", kName),
                         .source = read_text(fields, "lora_path", kPath)};
  fields.boolean("load_inplace", request.in_place);
  fields.neutral("is_3d_lora_weight", {false});
  fields.accept(std::array<const char*, 1>{"base_model_name"});
  return checked(fields, card, std::move(request));
}

absl::StatusOr<AdapterRequest> parse_unload_lora_adapter(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  AdapterRequest request{.name = read_text(fields, "lora_name", kName), .source = {}};
  fields.accept(std::array<const char*, 1>{"lora_int_id"});
  return checked(fields, card, std::move(request));
}

absl::StatusOr<AdapterRequest> parse_set_lora_adapter(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  AdapterRequest request{.name = read_text(fields, "lora_name", kName),
                         .source = read_text(fields, "lora_path", kPath),
                         .in_place = true,
                         .activate = true};
  fields.accept(std::array<const char*, 2>{"lora_int_id", "load_inplace"});
  return checked(fields, card, std::move(request));
}

absl::StatusOr<AdapterRequest> parse_lora_load(std::string_view text, const ModelCard& card) {
  BASCULE_ASSIGN(const json object, parse_object(text));
  Fields fields(object);
  AdapterRequest request{
      .name = {}, .source = read_text(fields, "adapter_path", kPath), .in_place = true, .activate = true};
  const std::filesystem::path folder(request.source);
  request.name = fields.find("adapter_name") != nullptr
                     ? read_text(fields, "adapter_name", kName)
                     : (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  return checked(fields, card, std::move(request));
}

}  // namespace bascule::ref
