"""The names of properties of characters in `\\p{…}`, and about how large each class is.

The names are those of the Unicode character database (PropertyAliases, PropertyValueAliases, of version 16), as many as
the engine of the codec that ours equals knows. Lines that begin with a number: the compiled size of the classes that
follow, in units of 32 bytes, measured; lines that are indented go on.
"""

from __future__ import annotations

import re

_CATEGORIES = """
3 lineseparator paragraphseparator zl zp
4 cc cntrl control
13 enclosingmark me
15 connectorpunctuation finalpunctuation lt pc pf titlecaseletter
16 initialpunctuation pi spaceseparator zs
17 separator z
25 co privateuse
33 letternumber nl
41 dashpunctuation pd
52 currencysymbol sc
54 cf format
61 modifiersymbol sk
107 closepunctuation pe
113 openpunctuation ps
122 mathsymbol sm
154 lm modifierletter
157 no othernumber
160 decimalnumber digit nd
297 casedletter lc
303 n number
320 mc spacingmark
348 otherpunctuation po
369 p punct punctuation
407 othersymbol so
492 s symbol
583 combiningmark m mark
604 mn nonspacingmark
826 lu uppercaseletter
861 ll lowercaseletter
1065 lo otherletter
1328 cn unassigned
1339 l letter
1345 c other
1598 assigned
"""
_SCRIPTS = """
3 thaa thaana
4 nko nkoo
5 batak batk brai braille bugi buginese buhd buhid hano hanunoo kali kayahli mand mandaic ogam ogham olchiki olck
  phag phagspa samaritan samr sylo sylotinagri tagalog tagb tagbanwa taile tale tglg
6 armi avestan avst bali balinese bass bassavah dogr dogra elba elbasan elym elymaic gukh gurungkhema hanifirohingya
  hatr hatran imperialaramaic inscriptionalpahlavi inscriptionalparthian ital kiratrai krai lyci lycian lydi lydian
  mahajani mahj maka makasar mani manichaean meeteimayek mero meroitichieroglyphs mro mroo mtei nabataean nagm
  nagmundari narb nbat olditalic oldnortharabian oldpermic oldsogdian oldsoutharabian olonal onao osma osmanya palm
  palmyrene pauc paucinhau perm phli phlp phnx phoenician prti psalterpahlavi rejang rjng rohg runic runr sarb saur
  saurashtra shavian shaw sogo sora sorasompeng sund sundanese sunu sunuwar taiviet tavt thai todhri todr toto ugar
  ugaritic vai vaii wancho wcho yezi yezidi
7 anatolianhieroglyphs cari carian cham chorasmian chrs cpmn cyprominoan deseret dsrt goth gothic hluw java javanese
  lepc lepcha medefaidrin medf oldturkic olduyghur orkh ougr sharada shrd sogd sogdian soyo soyombo takr takri
  zanabazarsquare zanb
8 adlam adlm aghb ahom bopo bopomofo brah brahmi cakm caucasianalbanian chakma copt coptic gara garay hmnp hung
  kaithi kawi khoj khojki khudawadi kthi marc marchen mend mendekikakui merc meroiticcursive modi nand nandinagari
  newa nyiakengpuachuehmong oldhungarian oldpersian osage osge qaac sgnw sidd siddham signwriting sind tfng tifinagh
  tirh tirhuta wara warangciti xpeo yi yiii
9 limb limbu lina lineara lisu mult multani newtailue talu tangsa tnsa
10 bhaiksuki bhks cprt cypriot khitansmallscript khmer khmr kits syrc syriac
11 canadianaboriginal cans miao plrd
12 armenian armn bamu bamum cher cherokee dupl duployan gong gunjalagondi lana malayalam mlym nshu nushu taitham
13 gonm hmng masaramgondi pahawhhmong
14 diak divesakuru glag glagolitic khar kharoshthi vith vithkuqi
15 deva devanagari egyp egyptianhieroglyphs lao laoo mong mongolian myanmar mymr
16 cuneiform hebr hebrew linb linearb tibetan tibt xsux
17 tang tangut tulutigalari tutg
18 geor georgian
19 kannada knda telu telugu
20 beng bengali gujarati gujr oriya orya
21 hira hiragana sinh sinhala
22 gran grantha gurmukhi guru
27 tamil taml
36 kana katakana
37 cyrillic cyrl
43 hang hangul
61 ethi ethiopic
68 greek grek
73 inherited qaai zinh
87 latin latn
110 arab arabic
111 han hani
392 common zyyy
"""
_BINARY = """
2 ascii cs
3 ahex asciihexdigit
5 idst idstrinaryoperator idsu idsunaryoperator joinc joincontrol
6 emod emojimodifier regionalindicator ri
8 bidic bidicontrol idsb idsbinaryoperator
9 patternwhitespace patws
10 hex hexdigit oids otheridstart
11 radical
14 mcm modifiercombiningmark variationselector vs
15 loe logicalorderexception
17 blank
18 otheruppercase oupper pcm prependedconcatenationmark
19 oidc otheridcontinue space whitespace wspace
21 dep deprecated
24 hyphen idcompatmathstart
25 qmark quotationmark
26 ecomp emojicomponent
28 any
30 odi otherdefaultignorablecodepoint
32 idcompatmathcontinue
44 defaultignorablecodepoint di
51 dash
55 patsyn patternsyntax
60 nchar noncharactercodepoint olower otherlowercase
65 ebase emojimodifierbase
68 sd softdotted
85 uideo unifiedideograph
91 ext extender
103 ogrext othergraphemeextend
121 ideo ideographic
127 graphemelink grlink
149 emojipresentation epres
156 extendedpictographic extpict
172 bidim bidimirrored
179 sentenceterminal sterm
207 omath othermath
225 math
227 term terminalpunctuation
238 emoji
261 changeswhencasemapped cwcm
322 cased
418 dia diacritic
454 oalpha otheralphabetic
630 graphemeextend grext
763 caseignorable ci
765 changeswhenlowercased cwl
781 changeswhencasefolded cwcf
790 changeswhentitlecased cwt
791 changeswhenuppercased cwu
841 upper uppercase
882 lower lowercase
1343 ids idstart
1354 xids xidstart
1471 alpha alphabetic
1531 alnum
1549 idc idcontinue
1557 word
1563 xidc xidcontinue
1593 graph print
1734 graphemebase grbase
"""
_GRAPHEME_BREAKS = """
cn control cr ex extend l lf lv lvt pp prepend regionalindicator ri sm spacingmark t v zwj
"""
_WORD_BREAKS = """
aletter cr doublequote dq ex extend extendnumlet fo format hebrewletter hl ka katakana le lf mb midletter midnum
midnumlet ml mn newline nl nu numeric regionalindicator ri singlequote sq wsegspace zwj
"""
_SENTENCE_BREAKS = """
at aterm cl close cr ex extend fo format le lf lo lower nu numeric oletter sc scontinue se sep sp st sterm up upper
"""
_AGES = """
1.1 2.0 2.1 3.0 3.1 3.2 4.0 4.1 5.0 5.1 5.2 6.0 6.1 6.2 6.3 7.0 8.0 9.0 10.0 11.0 12.0 12.1 13.0 14.0 15.0 15.1 16.0
"""

_OTHER_SIZE = 2000


def _sizes(table: str) -> dict[str, int]:
    """Size in bytes by name."""
    sizes: dict[str, int] = {}
    for line in re.split(r"\n(?=[0-9])", table.strip()):
        units, *names = line.split()
        sizes.update(dict.fromkeys(names, int(units) * 32))
    return sizes


_CATEGORY_SIZES, _SCRIPT_SIZES = _sizes(_CATEGORIES), _sizes(_SCRIPTS)
_ALONE = {**_sizes(_BINARY), **_SCRIPT_SIZES, **_CATEGORY_SIZES}
_AGE_NAMES = {name for age in _AGES.split() for name in (age, "v" + age.replace(".", ""))}
_VALUES: dict[str, dict[str, int]] = {}
for _names, _values in (
    (("gc", "generalcategory"), _CATEGORY_SIZES),
    (("sc", "script", "scx", "scriptextensions"), _SCRIPT_SIZES),
    (("gcb", "graphemeclusterbreak"), dict.fromkeys(_GRAPHEME_BREAKS.split(), _OTHER_SIZE)),
    (("wb", "wordbreak"), dict.fromkeys(_WORD_BREAKS.split(), _OTHER_SIZE)),
    (("sb", "sentencebreak"), dict.fromkeys(_SENTENCE_BREAKS.split(), _OTHER_SIZE)),
    (("age",), dict.fromkeys(_AGE_NAMES, _OTHER_SIZE)),
):
    _VALUES.update(dict.fromkeys(_names, _values))
_SEPARATOR = re.compile(r"!=|:|=")
_IGNORED = re.compile(r"[ _-]|[^\x00-\x7f]")


def property_size(name: str) -> int | None:
    """About the bytes that the class of a name takes; None: no property has that name.

    Case, blanks, `_`, `-`, and a leading `is` mean nothing.
    """
    name = name.removeprefix("^")
    separator = _SEPARATOR.search(name)
    if separator is None:
        return _ALONE.get(_plain(name))
    values = _VALUES.get(_plain(name[: separator.start()]))
    return None if values is None else values.get(_plain(name[separator.end() :]))


def _plain(name: str) -> str:
    has_mark = name[:2].lower() == "is"
    plain = _IGNORED.sub("", name[2:] if has_mark else name).lower()
    return "isc" if has_mark and plain == "c" else plain
