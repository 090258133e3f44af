#include <bascule/transport/wire/decoder.h>

#include <memory>
#include <new>
#include <utility>

#include <bascule/transport/status.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {

void Decoder::decode(Body body, std::size_t length, OnDecoded done) {
  std::function<void()> task = [this, length, body = std::make_shared<Body>(std::move(body)), done = std::move(done)] {
    absl::StatusOr<Message> message =
        absl::ResourceExhaustedError(cat("no memory for a message of ", length, " bytes"));
    try {
      message = bascule::decode(std::span(*body).first(length), &known_);
    } catch (const std::bad_alloc&) {
    }
    done(std::move(message));
  };
  has_thread() ? thread_->submit(std::move(task)) : task();
}

bool Decoder::has_thread() {
  if (thread_) return true;
  return starting_threads("the decoder",
                          [this] {
                            thread_.emplace();
                            return absl::OkStatus();
                          })
      .ok();
}

}  // namespace bascule::inline v0
