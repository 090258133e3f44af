#include <bascule/trainer_ref/engine/adapter_watch.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <future>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include <bascule/trainer_ref/model/adapter_folder.h>
#include <bascule/transport/status.h>

namespace bascule::ref {
namespace {

namespace fs = std::filesystem;

constexpr int kLookMilliseconds = 1000, kPauseMilliseconds = 100;

}  // namespace

absl::StatusOr<AdapterId> load_adapter(Engine& engine, AdapterLoader& loader, const std::string& name,
                                       const std::string& source, bool in_place) {
  BASCULE_ASSIGN(std::unique_ptr<AdapterWeights> weights, loader.open(source));
  std::promise<absl::Status> loaded;
  engine.load_adapter({.name = name, .source = source, .created = absl::ToUnixSeconds(absl::Now())}, in_place,
                      std::move(weights), [&loaded](const absl::Status& status) { loaded.set_value(status); });
  BASCULE_TRY(loaded.get_future().get());
  return engine.adapters().find(name).value_or(AdapterEntry{}).id;
}

AdapterWatch::AdapterWatch(std::string folder, Engine& engine, AdapterLoader& loader)
    : folder_(std::move(folder)), engine_(engine), loader_(loader) {}

absl::StatusOr<std::unique_ptr<AdapterWatch>> AdapterWatch::open(
    const std::string& folder, Engine& engine, AdapterLoader& loader,
    std::function<absl::Status(std::string_view name)> check_name, std::function<void(std::string_view)> warn) {
  std::unique_ptr<AdapterWatch> watch(new AdapterWatch(folder, engine, loader));
  watch->check_name_ = std::move(check_name);
  watch->warn_ = std::move(warn);
  if (folder.find("://") != std::string::npos) {
    BASCULE_ASSIGN(watch->endpoints_, EndpointFolder::open(folder));
  } else if (std::error_code error; !fs::is_directory(folder, error)) {
    return absl::NotFoundError(cat(folder, ": no such folder"));
  }
  watch->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!watch->stop_) return absl::ResourceExhaustedError("no descriptor is left to watch a folder of adapters");
  watch->look();  // what is there now is loaded before the engine takes requests
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

AdapterWatch::~AdapterWatch() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof one));
  thread_.join();
}

void AdapterWatch::run() {
  while (true) {
    // The descriptor changes when the folder is made again.
    std::array<pollfd, 2> fds{{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                               {.fd = endpoints_ ? endpoints_->descriptor() : -1, .events = POLLIN, .revents = 0}}};
    ::poll(fds.data(), fds.size(), kLookMilliseconds);
    if (fds[0].revents != 0) return;
    look();
    // What changes often must not keep a processor busy.
    if (::poll(fds.data(), 1, kPauseMilliseconds) > 0) return;
  }
}

// Not if a request has given the name another source since.
bool AdapterWatch::is_own(const std::string& name, const Tried& tried) const {
  const std::optional<AdapterEntry> entry = engine_.adapters().find(tried.id);
  return entry && entry->name == name && newest_source(*entry) == tried.source;
}

void AdapterWatch::say(const std::string& text) {
  if (said_.insert(text).second)
    warn_(absl::StrReplaceAll(absl::Utf8SafeCEscape(text), {{"\\'", "'"}, {"\\\"", "\""}}));
}

void AdapterWatch::look() {
  const absl::StatusOr<std::map<std::string, Source>> found = sources();
  if (!found.ok()) return say(cat("--adapters: ", message_of(found.status())));
  std::erase_if(tried_, [&](const auto& tried) {
    if (found->contains(tried.first)) return false;
    if (is_own(tried.first, tried.second))
      engine_.unload_adapter(
          tried.first, [](const absl::Status&) {}, tried.second.id);
    return true;
  });
  for (const auto& [name, source] : *found) load(name, source);
}

// A source is tried again once it has changed; one for which there was no room or no free name, once another adapter
// has gone.
void AdapterWatch::load(const std::string& name, const Source& source) {
  const std::size_t loaded = engine_.adapters().all().size();
  const auto known = tried_.find(name);
  const bool is_same = known != tried_.end() && known->second.stamp == source.stamp;
  if (is_same && (!known->second.is_full || loaded >= known->second.others)) return;
  // Never in place of an adapter of that name that came from elsewhere.
  const bool own = known != tried_.end() && is_own(name, known->second);
  Tried& tried = tried_[name];
  tried.source = source.source;
  tried.stamp = source.stamp;
  tried.others = loaded;
  absl::Status status = check_name_(name);
  if (status.ok()) {
    const absl::StatusOr<AdapterId> id = load_adapter(engine_, loader_, name, source.source, /*in_place=*/own);
    status = id.status();
    if (id.ok()) tried.id = *id;
  }
  tried.is_full = absl::IsResourceExhausted(status) || absl::IsAlreadyExists(status);
  if (!status.ok()) say(cat("--adapters: ", name, " is not loaded: ", message_of(status)));
}

absl::StatusOr<std::map<std::string, AdapterWatch::Source>> AdapterWatch::sources() {
  std::map<std::string, Source> sources;
  if (endpoints_) {
    BASCULE_ASSIGN(const auto urls, endpoints_->endpoints());
    for (const auto& [name, url] : urls) sources[name] = {.source = url, .stamp = {}};
    return sources;
  }
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error))
    if (!entry->path().filename().string().starts_with('.') && is_adapter_folder(entry->path()))  // else half written
      sources[entry->path().filename().string()] = {.source = entry->path().string(),
                                                    .stamp = stamp_of_adapter(entry->path())};
  if (error) return absl::NotFoundError(cat(folder_, ": ", error.message()));
  return sources;
}

}  // namespace bascule::ref
