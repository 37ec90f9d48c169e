#include "headrace/object/timestamp.h"

#include <fmt/core.h>

#include <array>
#include <chrono>

namespace headrace::object {

namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Takes text from its front.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  bool done() const { return text_.empty(); }
  bool Skip(char c) {
    if (text_.empty() || text_[0] != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  std::string_view Take(size_t n) {
    std::string_view front = text_.substr(0, n);
    text_.remove_prefix(front.size());
    return front;
  }
  // A number of exactly `digits` digits; -1 when there is none.
  int Number(size_t digits) {
    if (text_.size() < digits) return -1;
    int value = 0;
    for (char c : Take(digits)) {
      if (c < '0' || c > '9') return -1;
      value = value * 10 + (c - '0');
    }
    return value;
  }
  // A fraction of a second in nanoseconds, if there is one.
  int64_t Fraction() {
    int64_t ns = 0;
    if (!Skip('.')) return 0;
    for (int64_t unit = kSecond / 10; !text_.empty() && text_[0] >= '0' && text_[0] <= '9';
         unit /= 10)
      ns += unit * (Take(1)[0] - '0');
    return ns;
  }

 private:
  std::string_view text_;
};

// "00:21:43" in seconds; -1 when it is something else.
int ReadClock(Cursor* at) {
  int hour = at->Number(2);
  bool marks = at->Skip(':');
  int minute = at->Number(2);
  marks = at->Skip(':') && marks;
  int second = at->Number(2);
  if (!marks || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 60)
    return -1;
  return hour * 3600 + minute * 60 + second;
}

// `clock`: seconds of the day.
std::optional<int64_t> Seconds(int year, int month, int day, int clock) {
  using std::chrono::sys_days, std::chrono::year_month_day;
  if (year < 1678 || year > 2261 || month < 0 || day < 0 || clock < 0) return std::nullopt;
  year_month_day date{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                      std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return std::nullopt;
  int64_t days = sys_days(date).time_since_epoch().count();
  return days * 86400 + clock;
}

}  // namespace

std::optional<int64_t> ParseIso8601(std::string_view text) {
  Cursor at(text);
  int year = at.Number(4);
  bool marks = at.Skip('-');
  int month = at.Number(2);
  marks = at.Skip('-') && marks;
  int day = at.Number(2);
  marks = at.Skip('T') && marks;
  int clock = ReadClock(&at);
  int64_t fraction = at.Fraction();
  int64_t zone = 0;
  if (!at.Skip('Z')) {
    int sign = at.Skip('+') ? 1 : at.Skip('-') ? -1 : 0;
    int hours = at.Number(2);
    at.Skip(':');
    int minutes = at.Number(2);
    if (sign == 0 || hours < 0 || minutes < 0) return std::nullopt;
    zone = sign * (hours * 3600 + minutes * 60);
  }
  auto seconds = Seconds(year, month, day, clock);
  if (!marks || !at.done() || !seconds) return std::nullopt;
  return (*seconds - zone) * kSecond + fraction;
}

std::optional<int64_t> ParseHttpDate(std::string_view text) {
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  size_t comma = text.find(", ");
  if (comma == std::string_view::npos) return std::nullopt;
  Cursor at(text.substr(comma + 2));
  int day = at.Number(2);
  bool marks = at.Skip(' ');
  std::string_view name = at.Take(3);
  int month = -1;
  for (size_t i = 0; i < kMonths.size(); ++i)
    if (kMonths[i] == name) month = static_cast<int>(i) + 1;
  marks = at.Skip(' ') && marks;
  int year = at.Number(4);
  marks = at.Skip(' ') && marks;
  int clock = ReadClock(&at);
  marks = at.Skip(' ') && marks;
  auto seconds = Seconds(year, month, day, clock);
  if (!marks || at.Take(3) != "GMT" || !at.done() || !seconds) return std::nullopt;
  return *seconds * kSecond;
}

std::string FormatBasicIso8601(int64_t time_ns) {
  using std::chrono::days, std::chrono::floor, std::chrono::seconds;
  std::chrono::sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(time_ns)};
  auto day = floor<days>(time);
  std::chrono::year_month_day date(day);
  std::chrono::hh_mm_ss clock(floor<seconds>(time - day));
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", int{date.year()}, unsigned{date.month()},
                     unsigned{date.day()}, clock.hours().count(), clock.minutes().count(),
                     clock.seconds().count());
}

}  // namespace headrace::object
