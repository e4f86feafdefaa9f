"""Text the presets' tokenizer is trained on, written for this purpose."""

from __future__ import annotations

STORY = """\
Once upon a time there was a small mill at the edge of a wide forest. The miller had a daughter who \
counted everything she saw. She counted the stones in the river, the birds on the roof and the stars \
over the hill. When the winter was long, she counted the days until spring.

One morning an old man came to the mill. He carried a box under his arm, and in the box there was a \
clock that had no hands. "What is the use of a clock without hands?" asked the girl. "It does not tell \
the time," said the old man, "but it remembers every hour it has seen." The girl laughed, and then she \
was quiet, and then she asked if she could hear it.

The old man opened the box. The clock began to speak in a voice like water over stones. It told of a \
king who lost his crown in the sea, of a queen who found it in a fish, and of a boy who ate the fish and \
never knew. It told of the first rain and of the last fire. The girl listened until the sun went down, \
and the miller had to light the lamp.

"I will give you this clock," said the old man, "if you can count what it cannot." The girl thought for \
a long time. She thought of the stones and the birds and the stars, but the clock had seen them all. At \
last she said, "It cannot count the hours that are still to come." The old man smiled. He put the box on \
the table, took his hat and went away, and nobody in the valley ever saw him again.

From that day on the clock stood in the mill, between the window and the door. In the evening the people \
of the village came to hear it. The smith came with his three sons, the baker came with a loaf of bread, \
and the teacher came with a book in which she wrote down what the clock had said. When the book was \
full, she bought another one, and when that was full too, she asked the children to write.

So the children of the village learned to read and to write from a clock that had no hands. They wrote \
about the forest and the river, about the wind that comes from the sea, and about the little boat that \
went out one night and came back with a light in it. Some of the stories were true and some of them were \
not, and the clock would not say which.

Once upon a time, they wrote, there was a fox who wanted to be a bridge. He lay down over the stream, \
and the mice went across, and the frogs went across, and even the hedgehog went across with his winter \
apples. But when the bear came, the fox stood up and said, "I am only a fox." And the bear said, "That \
is all I wanted to know."

Once upon a time, they wrote, there was a house that was afraid of the dark. Every night it lit all of \
its windows, and the ships on the sea believed that it was a lighthouse. They came home safe, one after \
the other, and the house never knew why so many people were kind to it.

Once upon a time, they wrote, there was a girl who counted everything she saw. And when she was old and \
had a mill of her own, she had counted so far that there were no more numbers. So she began again with \
one, and this time she looked at each thing a little longer.

The wind went through the trees and over the hill. In the morning the river was full of ice, and the \
wheel of the mill stood still. The miller said that there would be no flour for a week. His daughter \
said that a week has seven days, and that each of them has a morning. Then she put on her coat and went \
out to count the trees.

She had not gone far when she met a hare, and the hare said, "Where are you going?" "I am going to count \
the trees," said the girl. "Then you will have to begin with me," said the hare, "because I was a tree \
before the snow came." The girl did not believe it, but she wrote it down: one hare that was a tree. \
After that she met a stone that had been a star, and a path that had been a river, and she wrote that \
down as well.

When it was dark she came home with a long list, and there was not a single tree on it. "How many are \
there?" asked the miller. "I do not know yet," said the girl, "but I know more than I knew before." And \
the clock, which had been quiet for the whole of the day, said in a low voice that this was the best \
answer it had heard in a hundred years.
"""

SCIENCE = """\
A language model reads a text from left to right and gives each possible next word a number between 0 \
and 1. The numbers add up to 1. To write, it takes one of the words, puts it at the end of the text and \
begins again. A model of this size has learned nothing: its weights are random numbers, and what it \
writes has the sound of a story and the sense of a dream.

The memory of a computer is a long row of cells. Each cell has an address, and in each cell there is a \
byte, which is a number from 0 to 255. A kilobyte is 1024 bytes. In 2024, 2025 and 2026 the price of \
memory went up; in 1999 a machine with 64 megabytes was a good one.
"""

LANGUAGES = """\
Es war einmal eine kleine Mühle am Rand eines großen Waldes.
Die Tochter des Müllers zählte alles, was sie sah.
Il était une fois un petit moulin au bord d'une grande forêt.
La fille du meunier comptait tout ce qu'elle voyait.
Había una vez un pequeño molino junto a un gran bosque. La hija del molinero contaba todo lo que veía.
很久以前,森林边有一座小磨坊。磨坊主的女儿喜欢数她看见的一切。有一天,一位老人来到磨坊。
むかしむかし、森のはずれに小さな水車小屋がありました。
Жила-была маленькая мельница на краю большого леса.
"""

CODE = """\
def count(items):
    total = 0
    for item in items:
        if item is not None:
            total += 1
    return total

class Clock:
    def __init__(self, hours):
        self.hours = list(hours)

    def remember(self, hour):
        self.hours.append(hour)
        return len(self.hours)

for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }
{"name": "clock", "hands": 0, "hours": [1, 2, 3], "open": true}
"""


def training_text() -> list[str]:
    """Lines to train on. The story counts thrice: the sample text of the presets should mostly be English."""
    return [line + "\n" for part in (STORY, STORY, STORY, SCIENCE, LANGUAGES, CODE) for line in part.split("\n")]
