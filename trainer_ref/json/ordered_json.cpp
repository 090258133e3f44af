#include <bascule/trainer_ref/json/ordered_json.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bascule::ref {
namespace {

using Json = nlohmann::ordered_json;

class Builder final : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return add(value);
    return add(Json::binary({text.begin(), text.end()}));
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // no text has it
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  Json root;

 private:
  Json& place(Json value) {
    if (open_.empty()) return root = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return parent.back();
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  std::vector<Json*> open_;  // a container does not change while one in it is open
  std::string key_;
};

}  // namespace

Json parse_ordered(std::string_view text) {
  Builder builder;
  Json::sax_parse(text, &builder);
  return std::move(builder.root);
}

const Json* find_big_integer(const Json& json) {
  if (json.is_binary()) return &json;
  if (!json.is_structured()) return nullptr;
  for (const Json& item : json)
    if (const Json* found = find_big_integer(item)) return found;
  return nullptr;
}

std::string_view digits_of(const Json& integer) {
  const Json::binary_t& bytes = integer.get_binary();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace bascule::ref
