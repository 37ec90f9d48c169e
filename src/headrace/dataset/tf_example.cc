// The message, in the language that defines it:
//   Example  { Features features = 1; }
//   Features { map<string, Feature> feature = 1; }   an entry: { string key = 1; Feature value = 2;
//   } Feature  { oneof { BytesList = 1; FloatList = 2; Int64List = 3; } }   each: repeated value =
//   1
#include "headrace/dataset/tf_example.h"

#include <algorithm>

#include "headrace/base/text.h"

namespace headrace::dataset {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kDelimited = 2, kFixed32 = 5 };
constexpr uint64_t kMaxVarintBytes = 10;
// What protobuf allows a message or value to have.
constexpr uint64_t kMaxDelimitedBytes = INT32_MAX;

struct Span {
  uint64_t at = 0, end = 0;  // offsets in the file
  bool empty() const { return at == end; }
};

struct Tag {
  uint32_t number = 0, wire_type = 0;
};

}  // namespace

struct TfExample::Parser {
  FileWindow* window;
  TfExample* out;

  Status Wrong(uint64_t at, std::string_view what) const {
    return Error(Code::kDataLoss, "{} at offset {}", what, at)
        .At({.file = window->file().path(), .offset = at, .key = {}, .field = {}});
  }
  Status TooMany(uint64_t at, std::string_view what) const {
    return Error(Code::kUnimplemented, "{} at offset {}", what, at)
        .At({.file = window->file().path(), .offset = at, .key = {}, .field = {}});
  }

  Result<uint64_t> ReadVarint(Span* span) {
    HR_ASSIGN_OR_RETURN(Bytes bytes,
                        window->Get(span->at, std::min(kMaxVarintBytes, span->end - span->at)));
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i) {
      uint64_t b = static_cast<uint64_t>(bytes[i]);
      value |= (b & 0x7f) << (7 * i);
      if (b >= 0x80) continue;
      span->at += i + 1;
      return value;
    }
    return Wrong(span->at, "expected a number of at most 10 bytes");
  }

  Result<Tag> ReadTag(Span* span) {
    const uint64_t at = span->at;
    HR_ASSIGN_OR_RETURN(uint64_t word, ReadVarint(span));
    Tag tag{static_cast<uint32_t>(word >> 3), static_cast<uint32_t>(word & 7)};
    if (word > UINT32_MAX || tag.number == 0) return Wrong(at, "expected the number of a field");
    return tag;
  }

  // The bytes of a length-delimited field.
  Result<Span> ReadDelimited(Span* span) {
    const uint64_t at = span->at;
    HR_ASSIGN_OR_RETURN(uint64_t length, ReadVarint(span));
    if (length > span->end - span->at || length > kMaxDelimitedBytes)
      return Wrong(
          at, fmt::format("a field of {} bytes where {} are left", length, span->end - span->at));
    Span inner{span->at, span->at + length};
    span->at = inner.end;
    return inner;
  }

  Status Skip(const Tag& tag, Span* span) {
    uint64_t bytes = tag.wire_type == kFixed64 ? 8 : 4;
    switch (tag.wire_type) {
      case kVarint:
        return ReadVarint(span).status();
      case kDelimited:
        return ReadDelimited(span).status();
      case kFixed64:
      case kFixed32:
        if (bytes > span->end - span->at) return Wrong(span->at, "a number is cut off");
        span->at += bytes;
        return OkStatus();
      case 3:
      case 4:
        return TooMany(span->at, "a protobuf group, which is not supported,");
      default:
        return Wrong(span->at, fmt::format("expected a wire type, found {}", tag.wire_type));
    }
  }

  // Calls `take` for each length-delimited field of the wanted numbers and skips the others.
  template <typename Take>
  Status ForEachDelimited(Span span, uint32_t last_number, Take take) {
    while (!span.empty()) {
      HR_ASSIGN_OR_RETURN(Tag tag, ReadTag(&span));
      if (tag.number > last_number || tag.wire_type != kDelimited) {
        HR_RETURN_IF_ERROR(Skip(tag, &span));
        continue;
      }
      HR_ASSIGN_OR_RETURN(Span inner, ReadDelimited(&span));
      HR_RETURN_IF_ERROR(take(tag.number, inner));
    }
    return OkStatus();
  }

  Status ReadExample(Span span) {
    return ForEachDelimited(span, 1, [this](uint32_t, Span features) {
      return ForEachDelimited(features, 1,
                              [this](uint32_t, Span entry) { return ReadEntry(entry); });
    });
  }

  Status ReadEntry(Span span) {
    if (out->features_.size() == kMaxFeatures)
      return TooMany(span.at, fmt::format("more than {} features", kMaxFeatures));
    TfFeature& feature = out->features_.emplace_back();
    feature.first_values = out->values_.size();
    HR_RETURN_IF_ERROR(ForEachDelimited(span, 2, [&](uint32_t number, Span inner) {
      return number == 1 ? ReadName(inner, &feature.name) : ReadFeature(inner, &feature);
    }));
    feature.num_values = out->values_.size() - feature.first_values;
    if (feature.name.empty()) return Wrong(span.at, "a feature without a name");
    return OkStatus();
  }

  Status ReadName(Span span, std::string* name) {
    if (span.end - span.at > kMaxNameBytes)
      return TooMany(span.at, fmt::format("a feature's name of more than {} bytes", kMaxNameBytes));
    HR_ASSIGN_OR_RETURN(Bytes bytes, window->Get(span.at, span.end - span.at));
    name->assign(AsText(bytes));
    return OkStatus();
  }

  Status ReadFeature(Span span, TfFeature* feature) {
    return ForEachDelimited(span, 3, [&](uint32_t number, Span list) {
      auto kind = static_cast<TfFeatureKind>(number);
      if (feature->kind != kind) out->values_.resize(feature->first_values);
      feature->kind = kind;
      return kind == TfFeatureKind::kBytes ? ReadBytesList(list) : ReadNumberList(list, kind);
    });
  }

  Status AddValues(const TfValues& values) {
    if (out->values_.size() == kMaxStretches)
      return TooMany(values.offset, fmt::format("more than {} values", kMaxStretches));
    out->values_.push_back(values);
    return OkStatus();
  }

  Status ReadBytesList(Span span) {
    return ForEachDelimited(span, 1, [this](uint32_t, Span value) {
      return AddValues({value.at, value.end - value.at, 1});
    });
  }

  // Numbers come packed, or each with a tag of its own.
  Status ReadNumberList(Span span, TfFeatureKind kind) {
    const uint32_t single = kind == TfFeatureKind::kFloat ? kFixed32 : kVarint;
    while (!span.empty()) {
      HR_ASSIGN_OR_RETURN(Tag tag, ReadTag(&span));
      const uint64_t begin = span.at;
      if (tag.number == 1 && tag.wire_type == kDelimited) {
        HR_ASSIGN_OR_RETURN(Span packed, ReadDelimited(&span));
        HR_RETURN_IF_ERROR(AddPacked(packed, kind));
      } else {
        HR_RETURN_IF_ERROR(Skip(tag, &span));
        if (tag.number == 1 && tag.wire_type == single)
          HR_RETURN_IF_ERROR(AddValues({begin, span.at - begin, 1}));
      }
    }
    return OkStatus();
  }

  Status AddPacked(Span packed, TfFeatureKind kind) {
    TfValues values{packed.at, packed.end - packed.at, 0};
    if (values.length == 0) return OkStatus();
    if (kind == TfFeatureKind::kInt64) {
      HR_ASSIGN_OR_RETURN(values.count, CountVarints(packed));
    } else if (values.length % 4 == 0) {
      values.count = values.length / 4;
    } else {
      return Wrong(packed.at, fmt::format("packed floats of {} bytes, which is no multiple of 4,",
                                          values.length));
    }
    return AddValues(values);
  }

  Result<uint64_t> CountVarints(Span span) {
    uint64_t count = 0, bytes_of_one = 0;
    while (!span.empty()) {
      HR_ASSIGN_OR_RETURN(
          Bytes bytes, window->Get(span.at, std::min(FileWindow::kMaxBytes, span.end - span.at)));
      if (bytes.empty()) return Wrong(span.at, "the file ends");
      for (std::byte b : bytes) {
        ++bytes_of_one;
        if (b < std::byte{0x80}) {
          ++count;
          bytes_of_one = 0;
        } else if (bytes_of_one == kMaxVarintBytes) {
          return Wrong(span.at, "a packed number of more than 10 bytes");
        }
      }
      span.at += bytes.size();
    }
    if (bytes_of_one != 0) return Wrong(span.end, "a packed number is cut off");
    return count;
  }
};

// Of the features with one name the last stays. Few have a name twice: mostly only the check is
// paid.
void TfExample::DropRepeated() {
  by_name_.resize(features_.size());
  for (uint32_t i = 0; i < by_name_.size(); ++i) by_name_[i] = i;
  std::sort(by_name_.begin(), by_name_.end(), [this](uint32_t a, uint32_t b) {
    int order = features_[a].name.compare(features_[b].name);
    return order != 0 ? order < 0 : a < b;
  });
  for (size_t i = 1; i < by_name_.size(); ++i)
    if (features_[by_name_[i - 1]].name == features_[by_name_[i]].name)
      features_[by_name_[i - 1]].num_values = SIZE_MAX;
  std::erase_if(features_, [](const TfFeature& f) { return f.num_values == SIZE_MAX; });
}

Status TfExample::Parse(FileWindow* window, uint64_t offset, uint64_t length) {
  features_.clear();
  values_.clear();
  Parser parser{window, this};
  HR_RETURN_IF_ERROR(parser.ReadExample({offset, offset + length}));
  DropRepeated();
  return OkStatus();
}

}  // namespace headrace::dataset
