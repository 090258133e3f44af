#include <bascule/transport/wire/decoder.h>

#include <memory>
#include <utility>

#include <bascule/transport/caught.h>
#include <bascule/transport/threads.h>

namespace bascule::inline v0 {

void Decoder::decode(Body body, std::size_t length, OnDecoded done) {
  std::function<void()> task = [this, length, body = std::make_shared<Body>(std::move(body)), done = std::move(done)] {
    absl::StatusOr<Message> message = out_of_memory();
    const absl::Status decoded = caught([&] { message = bascule::decode(std::span(*body).first(length), &known_); });
    if (!decoded.ok()) message = decoded;
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
